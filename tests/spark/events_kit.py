"""Readers of `events` without Spark, and jobs that give them something to read."""

from collections.abc import Iterable, Sequence
from typing import Any, Final

import pyarrow as pa

from penstock.core.events import Event
from penstock.core.job import QueueRef
from penstock.spark.events.batch import EventsReader
from penstock.spark.events.stream import EventsStreamReader
from penstock.spark.options import SourceOptions, read_options
from penstock.spark.schemas import EVENTS
from penstock.stores.protocol import Store
from penstock.testing.conformance.arrange import enqueue_each, new_job
from tests.conformance.having import on
from tests.conformance.stores import STORES
from tests.spark.conftest import SparkPlace

QUEUE: Final = QueueRef("default", "q")
OTHER: Final = QueueRef("default", "other")
Rows = list[dict[str, Any]]

only_sqlite = on([kind for kind in STORES if kind.name == "sqlite"])
only_valkey = on([kind for kind in STORES if kind.name == "valkey"])
only_postgres = on([kind for kind in STORES if kind.name == "postgres"])
not_postgres = on([kind for kind in STORES if kind.name in {"sqlite", "valkey"}])


def batch(place: SparkPlace, **options: Any) -> EventsReader:
    """A reader of a batch."""
    return EventsReader(_options(place, "read", options))


def stream(place: SparkPlace, **options: Any) -> EventsStreamReader:
    """A reader of a stream; it has to be stopped."""
    return EventsStreamReader(_options(place, "readStream", options))


def _options(place: SparkPlace, role: Any, options: dict[str, Any]) -> SourceOptions:
    return read_options(
        {"url": place.url, **{name: str(value) for name, value in options.items()}}, "events", role
    )


def rows(reader: EventsReader | EventsStreamReader, partitions: Iterable[Any]) -> Rows:
    """All rows of these partitions, by queue and as they came; their schema has to be the one."""
    batches = [each for partition in partitions for each in reader.read(partition)]

    assert all(each.schema.equals(EVENTS) for each in batches)
    found: Rows = pa.Table.from_batches(batches, EVENTS).to_pylist()
    return found


def batch_rows(place: SparkPlace, **options: Any) -> Rows:
    """What a batch finds."""
    reader = batch(place, **options)
    return rows(reader, reader.partitions())


def micro_batches(reader: EventsStreamReader, start: dict[str, Any] | None = None) -> list[Rows]:
    """The batches that a query would make, one after the other, until there is nothing more to read."""
    found = []
    here = reader.initialOffset() if start is None else start
    while (end := reader.latestOffset(here, reader.getDefaultReadLimit())) != here:
        found.append(rows(reader, reader.partitions(here, end)))
        here = end
    return found


def jobs_of(found: Rows) -> list[str]:
    """The jobs of rows, by queue and number."""
    return [row["job"] for row in sorted(found, key=lambda row: (row["queue"], row["seq"]))]


def fill(place: SparkPlace, *names: str, queue: QueueRef = QUEUE) -> list[Event]:
    """Enqueue these jobs one by one; all events of the queue, by then all readable."""

    async def work(store: Store) -> list[Event]:
        await enqueue_each(store, queue, [new_job(name) for name in names])
        return await store.events.read_events(queue)

    return place.run(work)


def trim(place: SparkPlace, through: int, queue: QueueRef = QUEUE) -> None:
    """Let the store forget events up to this number."""
    place.run(lambda store: store.events.trim(queue, through=through))


def seqs(found: Sequence[dict[str, Any]]) -> list[int]:
    """The numbers of rows."""
    return [row["seq"] for row in found]
