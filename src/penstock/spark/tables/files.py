"""Where a table's files are: a folder of this machine, or through Hadoop's file systems any other place."""

import os
import re
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from penstock.core.errors import OptionError
from penstock.stores.private_files import create_private_folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PATTERN: Final = "*?[]{}\\"
_URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")


class Entry(msgspec.Struct, frozen=True):
    """A file or folder in a folder. `modified` is Unix milliseconds."""

    name: str
    size: int
    is_folder: bool
    modified: int


class Files(Protocol):
    """What tables need of a file system. Paths are relative to `root`, with slashes."""

    root: str

    def url(self, path: str) -> str:
        """The path as Spark takes it."""
        ...

    def list(self, folder: str) -> list[Entry]:
        """What is in a folder, by name; nothing where there is no such folder."""
        ...

    def read(self, path: str) -> bytes | None:
        """What is in a file; None where there is none."""
        ...

    def put(self, path: str, data: bytes) -> bool:
        """Make a file, whole or not at all; False, and nothing done, where there is one already."""
        ...

    def delete(self, path: str) -> None:
        """Remove a file, or a folder with all that is in it; nothing where it is gone."""
        ...

    def rows(self, path: str) -> int:
        """How many rows a Parquet file has."""
        ...

    def keep(self, paths: Sequence[str]) -> None:
        """Have these files survive a power cut where that takes something to do."""
        ...


def is_address(folder: str) -> bool:
    """Whether it takes a Spark session to reach it."""
    return _URI.match(folder) is not None


def files_at(folder: str, spark: "SparkSession | None" = None) -> Files:
    """The files under a folder: plain ones for a path, Hadoop's for an address such as s3a://bucket/jobs."""
    if not folder.strip():
        raise OptionError("folder", folder, "a path, or an address such as s3a://bucket/jobs")
    if any(letter in folder for letter in _PATTERN):
        raise OptionError(
            "folder", folder, f"none of {' '.join(_PATTERN)} in it: Spark takes them for a pattern"
        )
    if not is_address(folder):
        return LocalFiles(folder)
    if spark is None:
        raise OptionError("folder", folder, "a path: an address needs a Spark session")
    from penstock.spark.tables.hadoop import HadoopFiles

    return HadoopFiles(spark, folder)


class LocalFiles:
    """A folder of this machine."""

    def __init__(self, root: str) -> None:
        self.root = str(Path(root).absolute())

    def url(self, path: str) -> str:
        """An address, so that no default file system of Spark's takes its place."""
        return f"file://{self._at(path)}"

    def list(self, folder: str) -> list[Entry]:
        """See `Files`."""
        try:
            found = [(each, each.stat()) for each in self._at(folder).iterdir()]
        except (FileNotFoundError, NotADirectoryError):
            return []
        entries = (
            Entry(each.name, stat.st_size, each.is_dir(), stat.st_mtime_ns // 1_000_000)
            for each, stat in found
        )
        return sorted(entries, key=lambda entry: entry.name)

    def read(self, path: str) -> bytes | None:
        """See `Files`."""
        try:
            return self._at(path).read_bytes()
        except FileNotFoundError:
            return None

    def put(self, path: str, data: bytes) -> bool:
        """See `Files`: a link to a whole file, which cannot replace another."""
        place = self._at(path)
        create_private_folder(place.parent)
        with tempfile.NamedTemporaryFile(dir=place.parent, prefix=".", delete=False) as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        whole = Path(file.name)
        try:
            os.link(whole, place)
        except FileExistsError:
            return False
        finally:
            whole.unlink()
        _sync(place.parent)
        return True

    def delete(self, path: str) -> None:
        """See `Files`."""
        place = self._at(path)
        if place.is_dir():
            shutil.rmtree(place)
        else:
            place.unlink(missing_ok=True)

    def rows(self, path: str) -> int:
        """See `Files`."""
        from pyarrow import parquet

        return int(parquet.read_metadata(self._at(path)).num_rows)

    def keep(self, paths: Sequence[str]) -> None:
        """See `Files`: Spark does not wait for the disk by itself."""
        places = [self._at(path) for path in paths]
        root = Path(self.root)
        folders = {parent for place in places for parent in place.parents if parent.is_relative_to(root)}
        for place in (*places, *folders):
            _sync(place)

    def _at(self, path: str) -> Path:
        return Path(self.root, path)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
