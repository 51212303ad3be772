"""A folder for whole files of tasks and the driver: on a disk, or where Arrow's file systems reach."""

import re
import tempfile
from pathlib import Path
from typing import IO, Final
from uuid import uuid4

import pyarrow as pa
from pyarrow import fs

from penstock.core.errors import OptionError
from penstock.stores.private_files import create_private_folder

_URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
_CHUNK: Final = 1 << 20


def absolute(option: str, folder: str) -> str:
    """The folder as every process understands it; OptionError when it cannot be one."""
    if not _URI.match(folder):
        return str(Path(folder).absolute())
    # Hadoop's name for what Arrow calls s3.
    address = re.sub(r"^s3[an]:", "s3:", folder)
    try:
        fs.FileSystem.from_uri(address)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise OptionError(option, folder, f"a path, or an address that Arrow reaches ({error})") from None
    return address


def refuse_unusable(option: str, where: str) -> None:
    """OptionError for a folder on a disk that cannot be made or takes no files: sooner than rows are in."""
    files, path = fs.FileSystem.from_uri(where) if _URI.match(where) else (fs.LocalFileSystem(), where)
    if not isinstance(files, fs.LocalFileSystem):
        return
    try:
        create_private_folder(Path(path))
        with tempfile.TemporaryFile(dir=path):
            pass
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise OptionError(option, where, f"a folder that files can be put into ({why})") from None


class Folder:
    """A folder, made when it is first written to. Files appear whole, and take the place of older ones."""

    def __init__(self, where: str) -> None:
        self.where = where
        self._files, path = (
            fs.FileSystem.from_uri(where) if _URI.match(where) else (fs.LocalFileSystem(), where)
        )
        self._path = path.rstrip("/")

    def put(self, name: str, data: IO[bytes]) -> None:
        """The file of that name, with what is in `data`."""
        self._files.create_dir(self._path)
        # Spark and others leave out what begins with a dot.
        begun = f"{self._path}/.{name}.{uuid4().hex}"
        try:
            with self._files.open_output_stream(begun) as out:
                while chunk := data.read(_CHUNK):
                    out.write(chunk)
            self._files.move(begun, f"{self._path}/{name}")
        except BaseException:
            self._drop(begun)
            raise

    def names(self, prefix: str) -> list[str]:
        """The files whose names begin so."""
        found = self._files.get_file_info(fs.FileSelector(self._path, allow_not_found=True))
        return sorted(each.base_name for each in found if each.base_name.startswith(prefix))

    def drop(self, name: str) -> None:
        """Remove a file; nothing where it is gone."""
        self._drop(f"{self._path}/{name}")

    def _drop(self, path: str) -> None:
        if self._files.get_file_info(path).type != fs.FileType.NotFound:
            self._files.delete_file(path)
