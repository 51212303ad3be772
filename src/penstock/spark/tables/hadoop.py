"""A table's files through the file systems that the Spark session has: HDFS, S3, Azure, Google and others."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from penstock.core.errors import ConfigError
from penstock.spark.tables.files import Entry

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WITHOUT_RENAME: Final = frozenset({"s3", "s3a", "s3n", "gs", "oss", "cosn", "obs", "wasb", "wasbs"})
"""Object stores that copy instead of renaming. There a file appears, whole, when it is closed."""


class HadoopFiles:
    """A folder behind an address. Needs a session with a JVM of its own, not one of Spark Connect."""

    def __init__(self, spark: "SparkSession", root: str) -> None:
        self.root = root.rstrip("/")
        jvm: Any = getattr(spark, "_jvm", None)
        if jvm is None:
            raise ConfigError(f"{root}: a session of Spark Connect cannot reach it; run the pipeline's own")
        self._jvm = jvm
        self._conf: Any = spark._jsparkSession.sessionState().newHadoopConf()
        self._hadoop: Any = jvm.org.apache.hadoop.fs
        try:
            self._fs: Any = self._path("").getFileSystem(self._conf)
        except Exception as error:  # noqa: BLE001 (whatever the file system throws)
            raise ConfigError(f"{root}: {_said(error)}") from None

    def url(self, path: str) -> str:
        """See `Files`."""
        return f"{self.root}/{path}" if path else self.root

    def list(self, folder: str) -> list[Entry]:
        """See `Files`."""
        try:
            found = self._fs.listStatus(self._path(folder))
        except Exception as error:
            if _is_missing(error):
                return []
            raise
        entries = (
            Entry(each.getPath().getName(), each.getLen(), each.isDirectory(), each.getModificationTime())
            for each in found
        )
        return sorted(entries, key=lambda entry: entry.name)

    def read(self, path: str) -> bytes | None:
        """See `Files`."""
        try:
            stream = self._fs.open(self._path(path))
        except Exception as error:
            if _is_missing(error):
                return None
            raise
        try:
            return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
        finally:
            stream.close()

    def put(self, path: str, data: bytes) -> bool:
        """See `Files`."""
        place = self._path(path)
        if self._fs.exists(place):
            return False
        if self._fs.getScheme() in WITHOUT_RENAME:
            self._write(place, data)
            return True
        whole = self._path(f"{path.rpartition('/')[0]}/.{uuid4().hex}")
        self._write(whole, data)
        try:
            # Of the two ways to rename it is this one that refuses to replace a file, on every file system.
            context = self._hadoop.FileContext.getFileContext(self._fs.getUri(), self._conf)
            context.rename(whole, place, self._jvm.java.lang.reflect.Array.newInstance(self._option(), 0))
        except Exception as error:
            self._fs.delete(whole, False)
            if "FileAlreadyExistsException" in _said(error):
                return False
            raise
        return True

    def delete(self, path: str) -> None:
        """See `Files`."""
        self._fs.delete(self._path(path), True)

    def rows(self, path: str) -> int:
        """See `Files`."""
        parquet = self._jvm.org.apache.parquet.hadoop
        source = parquet.util.HadoopInputFile.fromPath(self._path(path), self._conf)
        reader = parquet.ParquetFileReader.open(source)
        try:
            return int(reader.getRecordCount())
        finally:
            reader.close()

    def keep(self, paths: Sequence[str]) -> None:
        """See `Files`: these file systems keep what is closed as well as they can."""

    def _write(self, place: Any, data: bytes) -> None:
        stream = self._fs.create(place, False)
        stream.write(bytearray(data))
        # Only what is closed is there: after an error it is left open, and never appears.
        stream.close()

    def _option(self) -> Any:
        return self._jvm.java.lang.Class.forName("org.apache.hadoop.fs.Options$Rename")

    def _path(self, path: str) -> Any:
        return self._hadoop.Path(self.url(path))


def _said(error: BaseException) -> str:
    return str(getattr(error, "java_exception", None) or error).partition("\n")[0]


def _is_missing(error: BaseException) -> bool:
    return "FileNotFoundException" in _said(error)
