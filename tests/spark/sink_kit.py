"""Writers as plain objects: what Spark does with them, without Spark."""

import pickle
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.pandas.types import from_arrow_schema

from penstock.core.job import Job, QueueRef
from penstock.spark.options import read_options
from penstock.spark.sink import writers
from penstock.spark.sink.write_scope import WriteScope
from penstock.spark.sink.write_stats import WriteStats, Written
from penstock.spark.sink.writers import JobsWriter
from penstock.stores.protocol import Store
from penstock.stores.values import Query
from tests.spark.conftest import SparkPlace

QUEUE = QueueRef("default", "mail")
GIVEN = {"queue": "mail", "task": "send", "keyColumns": "n", "declare": "true"}
Partitions = Sequence[Iterable[pa.RecordBatch]]


def numbers(*ranges: range, **more: Any) -> list[list[pa.RecordBatch]]:
    """One partition per range, with a column n, in batches of up to 100 rows."""
    return [
        [
            pa.record_batch({"n": pa.array(list(part[at : at + 100]))} | more)
            for at in range(0, len(part), 100)
        ]
        for part in ranges
    ]


def rows(**columns: Any) -> list[list[pa.RecordBatch]]:
    """One partition with one batch of these columns."""
    return [[pa.record_batch({name: _array(values) for name, values in columns.items()})]]


def _array(values: Any) -> pa.Array:
    return values if isinstance(values, pa.Array) else pa.array(values)


class Sink:
    """A write, as Spark runs it: planned on the driver, written by tasks, summed up on the driver."""

    def __init__(self, place: SparkPlace, **options: str | None) -> None:
        given = {
            name: text for name, text in ({"url": place.url} | GIVEN | options).items() if text is not None
        }
        self.options = read_options(given, role="write")

    def writer(self, partitions: Partitions) -> JobsWriter:
        """The writer for rows like these, with what a pickle leaves of it."""
        batches = [next(iter(part)) for part in partitions]
        made: JobsWriter = pickle.loads(
            pickle.dumps(JobsWriter(self.options, from_arrow_schema(batches[0].schema)))
        )
        return made

    def write(self, partitions: Partitions, *, batch_id: int | None = None, again: int = 0) -> WriteStats:
        """Write it all, each task so many times more; what the driver summed up."""
        writer = self.writer(partitions)
        messages: list[Any] = []
        for number, part in enumerate(partitions):
            with at_place(number, batch_id):
                for _ in range(again):
                    writer.write(iter(part))
                messages.append(pickle.loads(pickle.dumps(writer.write(iter(part)))))
        writer.commit(messages)
        return summed(messages)


@contextmanager
def at_place(partition: int, batch_id: int | None = None) -> Iterator[None]:
    """Be the task of this partition."""

    def here(write_id: str | None, made: str) -> WriteScope:
        return WriteScope(write_id or made, batch_id, partition)

    with patch.object(writers, "scope_here", here):
        yield


def summed(messages: Sequence[Written]) -> WriteStats:
    """The sum of what tasks counted."""
    stats = WriteStats()
    for message in messages:
        stats.add(message.stats)
    return stats


async def jobs_of(store: Store, queue: QueueRef = QUEUE) -> list[Job]:
    """Every job of a queue."""
    return (await store.reads.find(queue, Query(limit=100_000))).jobs


def numbers_in(place: SparkPlace, queue: QueueRef = QUEUE) -> list[int]:
    """The argument n of every job, sorted: a job that is there twice is twice in it."""
    jobs = place.run(lambda store: jobs_of(store, queue))
    return sorted(msgspec.json.decode(job.payload)["n"] for job in jobs)


def quarantined(folder: Path) -> list[dict[str, Any]]:
    """Every row in quarantine, by its text."""
    files = sorted(folder.glob("*.parquet")) if folder.exists() else []
    found = [row for file in files for row in pq.read_table(file).to_pylist()]
    return sorted(found, key=lambda row: str(row["row"]))


class Stumble(Exception):
    """What a task fails with, once."""


def stumbling(batches: Iterable[pa.RecordBatch], after: int) -> Iterator[pa.RecordBatch]:
    """The batches, up to a failure after so many of them."""
    for at, batch in enumerate(batches):
        if at == after:
            raise Stumble
        yield batch
    raise Stumble
