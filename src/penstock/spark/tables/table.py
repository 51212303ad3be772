"""A table on files: batches in folders, each there once its manifest is."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, ClassVar, Final
from uuid import uuid4

import msgspec
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from penstock.core.errors import TableError
from penstock.spark.tables import manifests
from penstock.spark.tables.columns import merged
from penstock.spark.tables.files import Files
from penstock.spark.tables.manifests import DataFile, Manifest, QueueCount, batch_name, cover, span_of

_TIMES: Final = "spark.sql.parquet.outputTimestampType"
_CHECKED: Final = "parquet.page.verify-checksum.enabled"
"""Pages are always written with a checksum; that it is right is looked at only when asked for."""


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """Which batches of which query are to be written."""

    first: int
    last: int
    query: str
    offsets: Any = None


class Table:
    """One table in a folder of its own. `base` are columns that it has in any case."""

    keeps_rows: ClassVar[bool] = True
    """False where rows of several batches may become one when those do."""

    def __init__(self, spark: SparkSession, files: Files, name: str, base: StructType | None = None) -> None:
        self.spark = spark
        self.files = files
        self.name = name
        self._base = base
        self._known: dict[str, Manifest] = {}

    @property
    def where(self) -> str:
        """The table's address, for messages."""
        return self.files.root

    def live(self) -> list[Manifest]:
        """The manifests that make up the table, by batch."""
        names = {entry.name for entry in self.files.list(manifests.FOLDER)}
        spans = [span for name in names if (span := span_of(name)) is not None]
        # Manifests do not change: each is read once.
        self._known = {name: each for name, each in self._known.items() if name in names}
        return [self._manifest(*span) for span in cover(self.where, spans)]

    def last(self) -> int:
        """The newest batch; -1 when there is none."""
        return max((each.last for each in self.live()), default=-1)

    def read(self, batches: Sequence[Manifest] | None = None) -> DataFrame:
        """The rows of these batches, or of all, with the columns that any of them has."""
        chosen = self.live() if batches is None else list(batches)
        base = [] if self._base is None else [self._base]
        schemas = [StructType.fromJson(each.schema) for each in chosen]
        schema = merged(self.where, [*base, *schemas])
        paths = [self.files.url(each.path) for manifest in chosen for each in manifest.files]
        if not paths:
            return self.spark.createDataFrame([], schema)
        try:
            return self.spark.read.schema(schema).option(_CHECKED, True).parquet(*paths)
        except AnalysisException as error:
            said = str(error).partition("\n")[0]
            raise TableError(f"{self.where}: a manifest names a file that is not there: {said}") from None

    def rows(self) -> DataFrame:
        """The table as readers want it."""
        return self.read()

    def merged(self, rows: DataFrame) -> DataFrame:
        """What is left of the rows of several batches when they become one; here all."""
        return rows

    def standing(self, batch: Batch) -> Manifest | None:
        """The manifest of a batch that is written already.

        TableError where the table is another query's, or where batches before this one are missing.
        """
        live = self.live()
        if not live:
            if batch.first > 0:
                raise TableError(
                    f"{self.where}: the next batch of the query is {batch.first}, and the table is empty: "
                    "it was moved or removed; put it back, or begin anew with a new folder"
                )
            return None
        owner = live[-1].query
        if owner != batch.query:
            raise TableError(
                f"{self.where}: belongs to the query {owner}, and the checkpoint to {batch.query}: "
                "use the checkpoint that the table was written with, or another folder"
            )
        if batch.first > live[-1].last + 1:
            raise TableError(
                f"{self.where}: batch {live[-1].last} is the newest, and {batch.first} comes next: "
                "those between were removed"
            )
        return next((each for each in live if each.first <= batch.last <= each.last), None)

    def write(self, batch: Batch, rows: DataFrame) -> Manifest:
        """Write a batch, in place of what an unfinished try left; nothing is done if it stands already."""
        if (there := self.standing(batch)) is not None:
            return there
        self.files.delete(self.folder(batch))
        return self.commit(batch, *self.stage(batch, rows))

    def folder(self, batch: Batch) -> str:
        """Where the tries of a batch are."""
        return f"batch_id={batch_name(batch.first, batch.last)}"

    def stage(self, batch: Batch, rows: DataFrame) -> tuple[StructType, tuple[DataFile, ...]]:
        """Write the rows into files that no manifest names yet."""
        # A folder per try: what is left of a killed one may still write, and must not get into this one.
        folder = f"{self.folder(batch)}/{uuid4().hex}"
        with _micros(rows.sparkSession):
            rows.write.option("compression", "zstd").parquet(self.files.url(folder))
        found = [entry for entry in self.files.list(folder) if entry.name.endswith(".parquet")]
        files = (
            DataFile(path, self.files.rows(path), entry.size)
            for entry in found
            for path in [f"{folder}/{entry.name}"]
        )
        return rows.schema, tuple(each for each in files if each.rows)

    def commit(
        self,
        batch: Batch,
        schema: StructType,
        files: tuple[DataFile, ...],
        queues: tuple[QueueCount, ...] = (),
    ) -> Manifest:
        """Write the manifest: with it the batch is in the table."""
        manifest = Manifest(
            format=manifests.FORMAT,
            table=self.name,
            first=batch.first,
            last=batch.last,
            query=batch.query,
            schema=schema.jsonValue(),
            files=files,
            written_at=time.time_ns() // 1_000_000,
            offsets=batch.offsets,
            queues=queues,
        )
        self.files.keep([each.path for each in files])
        if self.files.put(manifest.path, manifest.to_json()):
            return manifest
        # Somebody else was faster with the same batch.
        there = self.standing(batch)
        if there is None:
            raise TableError(f"{self.where}: the manifest {manifest.path} is there, and stands for nothing")
        with suppress(OSError):
            for each in files:
                self.files.delete(each.path)
        return there

    def _manifest(self, first: int, last: int) -> Manifest:
        name = manifests.file_name(first, last)
        if name not in self._known:
            path = f"{manifests.FOLDER}/{name}"
            data = self.files.read(path)
            if data is None:
                raise TableError(f"{self.where}: {path} went away while the table was read")
            manifest = manifests.from_json(f"{self.where}/{path}", data)
            if manifest.table != self.name:
                raise TableError(f"{self.where}: a table of {manifest.table}, not of {self.name}")
            self._known[name] = manifest
        return self._known[name]


@contextmanager
def _micros(spark: SparkSession) -> Iterator[None]:
    """Times as every reader of Parquet knows them, whatever the session is set to."""
    before = spark.conf.get(_TIMES)
    spark.conf.set(_TIMES, "TIMESTAMP_MICROS")
    try:
        yield
    finally:
        spark.conf.set(_TIMES, before or "")
