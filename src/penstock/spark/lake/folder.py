"""A folder of a lake: on this machine, or behind an address of an object store."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa

from penstock.core.errors import OptionError
from penstock.spark.errors import TableError
from penstock.stores.private_files import FILE_MODE, create_private_folder

_PATTERN: Final = "*?[]{}\\%"
_DECORATION: Final = re.compile(r"\x1b\[\d*m|\u21b3")
_LONGEST: Final = 500
_ADDRESS: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")


class Folder(msgspec.Struct, frozen=True):
    """Where tables are, for drivers and executors alike. Paths below it have slashes.

    Addresses are reached through the object stores of delta-rs, with its environment variables
    (`AWS_ACCESS_KEY_ID`, `AZURE_STORAGE_ACCOUNT_NAME` …): data and log go the same way.
    """

    uri: str

    @property
    def is_local(self) -> bool:
        """Whether it is a path of this machine."""
        return _ADDRESS.match(self.uri) is None

    def below(self, path: str) -> "Folder":
        """A folder in this one."""
        return Folder(f"{self.uri}/{path}")

    def spark_url(self, path: str = "") -> str:
        """A path in it as Spark takes it; Hadoop's connector for S3 is called s3a."""
        whole = f"{self.uri}/{path}" if path else self.uri
        return f"file://{whole}" if self.is_local else re.sub(r"^s3:", "s3a:", whole)

    def make(self) -> None:
        """Have a folder of this machine, for its owner alone; object stores have no folders."""
        if self.is_local:
            with _told(self.uri):
                create_private_folder(Path(self.uri))

    def write(self, path: str, data: bytes) -> None:
        """Make a new file; it is on disk when this returns. TableError where it cannot be written."""
        with _told(self.uri):
            self._write(path, data)

    def open(self, path: str) -> Any:
        """A file to read from, as Arrow takes it; TableError where it is not there."""
        with _told(f"{self.uri}/{path}"):
            if self.is_local:
                return pa.OSFile(str(Path(self.uri, path)))
            return pa.PythonFile(self._handler().open_input_file(path), mode="r")

    def _write(self, path: str, data: bytes) -> None:
        if not self.is_local:
            stream = self._handler().open_output_stream(path)
            stream.write(data)
            stream.close()
            return
        place = Path(self.uri, path)
        create_private_folder(place.parent)
        with os.fdopen(os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())

    def _handler(self) -> Any:
        # That of `deltalake.fs` hands buffers of Arrow on, which its own streams refuse to write.
        from deltalake._internal import DeltaFileSystemHandler

        return DeltaFileSystemHandler(self.uri)


@contextmanager
def _told(where: str) -> Iterator[None]:
    """What a disk or an object store fails with, as one line that names the place."""
    try:
        yield
    except OSError as error:
        raise TableError(f"{where}: {error.strerror or one_line(error)}") from None


def one_line(error: BaseException) -> str:
    """What delta-rs says of a failure, without its colours and arrows, and no longer than one reads."""
    return " ".join(_DECORATION.sub("", str(error)).split())[:_LONGEST]


def folder_at(given: str) -> Folder:
    """The folder that somebody named: a path, or an address such as s3://bucket/lake."""
    if not given.strip():
        raise OptionError("folder", given, "a path, or an address such as s3://bucket/lake")
    if any(letter in given for letter in _PATTERN):
        raise OptionError(
            "folder", given, f"none of {' '.join(_PATTERN)} in it: Spark takes them for a pattern"
        )
    if _ADDRESS.match(given) is None:
        return Folder(str(Path(given).absolute()))
    if given.startswith("file:"):
        return Folder("/" + given.removeprefix("file:").lstrip("/"))
    return Folder(given.rstrip("/"))
