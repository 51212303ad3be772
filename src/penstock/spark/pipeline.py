"""The pipeline: brings the event log of a store into the tables of a lake, batch by batch.

Where it is in the log stands in the commit that brings the events: there is no checkpoint beside the tables
that could be lost, or be of another lake. Planning and registering are those of the streaming reader.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec
from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows

from penstock.core.errors import CursorLostError, PenstockError
from penstock.spark.errors import TableError
from penstock.spark.events.offsets import read_offset
from penstock.spark.events.ranges import EventRange, backlogs
from penstock.spark.events.stream import EventsStreamReader
from penstock.spark.lake import upkeep
from penstock.spark.lake.bronze import Brought, Counts, Ingest, ingest
from penstock.spark.lake.executors import on_executors
from penstock.spark.lake.folder import folder_at
from penstock.spark.lake.lake import Cut, Lake
from penstock.spark.options import read_options

P = TypeVar("P")
R = TypeVar("R")
MOST_EVENTS: Final = 1_000_000
"""Events of a batch where no other bound is given: what is in memory at once is bounded by it."""
EVENTS_PER_TASK: Final = 100_000
BATCH_SECONDS: Final = 300.0
"""How long a running batch is waited for when the pipeline is told to stop. It is exact either way."""
TIDY_BATCHES: Final = 64
"""After so many batches small files are joined, so that a table never has many."""
VACUUM_SECONDS: Final = 3_600.0


class Done(msgspec.Struct, frozen=True):
    """What the pipeline has done since it was started.

    `duplicates` are rows whose number was in their batch before, `problems` could not be read, `gaps` stand
    for events that were trimmed before they were read. Of the last batch, `lag_ms` is how old its newest
    event was when it was in the tables, and `rate` how many events it took per second of its work.
    """

    batches: int = 0
    events: int = 0
    duplicates: int = 0
    problems: int = 0
    gaps: int = 0
    lag_ms: int | None = None
    rate: float | None = None


class Pipeline:
    """Brings events from a store into the lake in a folder; each exactly once, however it is stopped.

    `options` are those of the format `penstock`, such as `url` and `queues`. With `every` it looks for new
    events in that many seconds, without it reads what is there now and ends.
    """

    def __init__(
        self, spark: SparkSession, folder: str, options: Mapping[str, str], *, every: float | None = None
    ) -> None:
        self._spark = spark
        self._options = read_options({**options, "table": "events"}, role="readStream")
        self._every = every
        self._lake = Lake(folder_at(folder))
        self._cores = _cores(spark)
        self._thread = threading.Thread(target=self._run, name="penstock-lake", daemon=True)
        self._stopping = threading.Event()
        self._failure: BaseException | None = None
        self._vacuumed = time.monotonic()
        self.done = Done()

    def start(self) -> None:
        """Begin; what an earlier run left unfinished comes first."""
        self._thread.start()

    def wait(self, seconds: float) -> bool:
        """Wait for its end, but not longer than this; True when it has ended. What made it fail is raised."""
        if self._thread.ident is None:
            raise PenstockError("the pipeline was not started")
        self._thread.join(seconds)
        if self._failure is not None:
            raise self._failure
        return not self._thread.is_alive()

    def stop(self) -> None:
        """Let a batch that runs be finished, and end."""
        self._stopping.set()
        self._thread.join(BATCH_SECONDS)

    def _run(self) -> None:
        try:
            self._take_all()
        except BaseException as error:  # noqa: BLE001 (raised where the result is awaited)
            self._failure = error

    def _take_all(self) -> None:
        lake = self._lake
        lake.make()
        lake.follow(self._on_executors, self._cores)
        reader = EventsStreamReader(self._options)
        try:
            start = lake.bronze.said.offsets or self._of_lake(reader.initialOffset)
            if self._every is None:
                reader.prepareForTriggerAvailableNow()
            limit = _limit(self._options.max_events_per_trigger)
            while not self._stopping.is_set():
                began = time.monotonic()
                end = self._of_lake(lambda at=start: reader.latestOffset(at, limit))  # type: ignore[misc]
                if end != start:
                    self._take(reader, start, end)
                    start = end
                    continue
                if self._every is None:
                    return
                self._tidy()
                self._stopping.wait(max(0.0, began + self._every - time.monotonic()))
        finally:
            reader.stop()

    def _take(self, reader: EventsStreamReader, start: dict[str, Any], end: dict[str, Any]) -> None:
        """One batch, into all tables."""
        began = time.monotonic()
        lake, batch = self._lake, self._lake.bronze.batch + 1
        waiting = backlogs(read_offset("lake", start), read_offset("lake", end)).values()
        events = sum(backlog.size for backlog in waiting)
        parts = lake.parts_for(events, self._cores)
        ranges = [each for each in reader.partitions(start, end) if isinstance(each, EventRange)]
        at = time.time_ns() // 1_000_000
        folder, options = lake.bronze.folder, self._options
        pieces = [
            Ingest(folder, options, part, batch, at, parts)
            for part in _shared_out(ranges, events, self._cores)
        ]
        brought: list[Brought] = self._on_executors(ingest, pieces)
        counts = lake.add(batch, end, brought)
        lake.follow(
            self._on_executors, self._cores, Cut(parts, frozenset().union(*(each.parts for each in brought)))
        )
        reader.commit(end)
        self._count(counts, time.monotonic() - began)
        if batch % TIDY_BATCHES == TIDY_BATCHES - 1:
            self._join_files()
        if self._every is not None:
            self._stopping.wait(max(0.0, began + self._every - time.monotonic()))

    def _on_executors(self, work: Callable[[P], R], pieces: Sequence[P]) -> list[R]:
        return on_executors(self._spark, work, pieces)

    def _of_lake(self, plan: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """The offset that planning finds; TableError where the lake is of another log."""
        try:
            return plan()
        except CursorLostError as error:
            if self._lake.bronze.batch < 0 or error.trimmed is not None:
                raise
            raise TableError(
                f"{self._lake.folder.uri}: this lake has events of another store, or of what the store was "
                f"before it lost some: {error}. Name the store that it is of, or begin a new folder"
            ) from error

    def _count(self, counts: Counts, seconds: float) -> None:
        done, now = self.done, time.time_ns() // 1_000_000
        self.done = Done(
            batches=done.batches + 1,
            events=done.events + counts.rows,
            duplicates=done.duplicates + counts.duplicates,
            problems=done.problems + counts.problems,
            gaps=done.gaps + counts.gaps,
            lag_ms=None if counts.newest is None else max(0, now - counts.newest),
            rate=counts.rows / max(seconds, 1e-3),
        )

    def _join_files(self) -> None:
        for table in self._lake.tables:
            upkeep.optimize(table, fewest=TIDY_BATCHES // 2)

    def _tidy(self) -> None:
        """Remove old files now and then, when there is nothing else to do."""
        if time.monotonic() - self._vacuumed > VACUUM_SECONDS:
            self._vacuumed = time.monotonic()
            for table in self._lake.tables:
                upkeep.vacuum(table)


def _limit(most: int | None) -> ReadLimit:
    return ReadMaxRows(most or MOST_EVENTS)


def _shared_out(ranges: Sequence[EventRange], events: int, cores: int) -> list[Sequence[EventRange]]:
    """Stretches for each task: about as many for each, and no more tasks than pay."""
    tasks = max(-(-events // EVENTS_PER_TASK), min(cores, events // 5_000), 1)
    size = -(-len(ranges) // tasks)
    return [ranges[at : at + size] for at in range(0, len(ranges), size)]


def _cores(spark: SparkSession) -> int:
    """How many tasks run at once; a session of Spark Connect does not tell."""
    try:
        return int(spark.sparkContext.defaultParallelism)
    except PenstockError:
        raise
    except Exception:  # noqa: BLE001 (Spark's, of several kinds)
        return 2
