"""The pipeline: a streaming query over the event log that fills bronze and silver, batch by batch."""

import json
import time
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.core.errors import PenstockError, TableError
from penstock.spark.tables.bronze import Bronze
from penstock.spark.tables.files import files_at
from penstock.spark.tables.silver import SHAPES, Silver
from penstock.spark.tables.table import Batch

CHECKPOINT: Final = "_checkpoint"
LOOK_SECONDS: Final = 0.05
BATCH_SECONDS: Final = 300.0
"""How long a running batch is waited for when the pipeline is told to stop. It is exact either way."""


class Done(msgspec.Struct, frozen=True):
    """What the pipeline has done since it was started; `QueueCount` says what each number means.

    `lag_ms` is how old the newest event of the last batch was when it was in the tables.
    """

    batches: int = 0
    events: int = 0
    duplicates: int = 0
    problems: int = 0
    gaps: int = 0
    lag_ms: int | None = None


class Pipeline:
    """Brings events from a store into the tables below a folder; each exactly once, however it is stopped.

    `options` are those of the format `penstock`, such as `url` and `queues`. With `every` it looks for new
    events in that many seconds, without it reads what is there now and ends.
    """

    def __init__(
        self, spark: SparkSession, folder: str, options: Mapping[str, str], *, every: float | None = None
    ) -> None:
        self._spark = spark
        self._options = options
        self._every = every
        self._home = files_at(folder, spark)
        self._bronze = Bronze(spark, files_at(f"{folder}/events", spark))
        self._silver = [Silver(spark, files_at(f"{folder}/{name}", spark), name) for name in SHAPES]
        self._query: StreamingQuery | None = None
        self._is_stopping = False
        self._is_last_done = False
        self._failure: Exception | None = None
        self.done = Done()

    def start(self) -> None:
        """Begin; a batch that was cut short before comes first."""
        rows = (
            self._spark.readStream.format("penstock").options(**{**self._options, "table": "events"}).load()
        )
        writer = rows.writeStream.foreachBatch(self._take).option(
            "checkpointLocation", self._home.url(CHECKPOINT)
        )
        if self._every is None:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=f"{round(self._every * 1000)} milliseconds")
        self._query = writer.start()

    def wait(self, seconds: float) -> bool:
        """Wait for its end, but not longer than this; True when it has ended. What made it fail is raised."""
        query = self._started()
        try:
            # Parts of a second are fine, whatever its annotation says.
            has_ended = bool(query.awaitTermination(seconds))  # type: ignore[arg-type]
        except PySparkException as error:
            raise self._failure or error from None
        return has_ended

    def stop(self) -> None:
        """Let a batch that runs or is being planned be finished, and end."""
        query = self._started()
        self._is_stopping = True
        give_up = time.monotonic() + BATCH_SECONDS
        # Neither a start nor a batch is cut short: Spark would leave half-started processes behind.
        while query.isActive and _is_busy(query.status) and time.monotonic() < give_up:
            time.sleep(LOOK_SECONDS)
        query.stop()

    def _started(self) -> StreamingQuery:
        if self._query is None:
            raise PenstockError("the pipeline was not started")
        return self._query

    def _take(self, rows: DataFrame, number: int) -> None:
        """One batch, into all tables."""
        if self._is_last_done:
            # Not a return: Spark would take the batch for done.
            raise PenstockError("the pipeline is stopping")
        self._is_last_done = self._is_stopping
        try:
            self._write(rows, number)
        except Exception as error:
            self._failure = error
            raise

    def _write(self, rows: DataFrame, number: int) -> None:
        query = self._query_id()
        batch = Batch(first=number, last=number, query=query, offsets=self._offsets(number))
        manifest = self._bronze.write(batch, rows)
        self._follow(query)
        newest = max((count.newest for count in manifest.queues if count.newest is not None), default=None)
        self.done = Done(
            batches=self.done.batches + 1,
            events=self.done.events + manifest.rows,
            duplicates=self.done.duplicates + sum(count.duplicates for count in manifest.queues),
            problems=self.done.problems + sum(count.problems for count in manifest.queues),
            gaps=self.done.gaps + sum(count.gaps for count in manifest.queues),
            lag_ms=None if newest is None else max(0, time.time_ns() // 1_000_000 - newest),
        )

    def _follow(self, query: str) -> None:
        for table in self._silver:
            table.follow(self._bronze, query)

    def _query_id(self) -> str:
        """Of the query, not of this run of it; the checkpoint keeps it."""
        found = self._home.read(f"{CHECKPOINT}/metadata")
        if found is None:
            raise TableError(f"{self._home.root}/{CHECKPOINT}: the checkpoint has gone")
        return str(json.loads(found)["id"])

    def _offsets(self, number: int) -> Any:
        """How far the log is read with this batch; None where Spark writes it down in another way."""
        found = self._home.read(f"{CHECKPOINT}/offsets/{number}")
        last = b"" if found is None else found.rpartition(b"\n")[2]
        try:
            return msgspec.json.decode(last)
        except msgspec.DecodeError:
            return None


def _is_busy(status: Mapping[str, Any]) -> bool:
    return bool(status["isTriggerActive"]) or str(status["message"]).startswith("Initializing")
