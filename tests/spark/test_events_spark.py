"""The table `events` through Spark itself: in batch, as a stream, and what a failed query says."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.stores.protocol import Store
from penstock.testing.conformance.arrange import enqueue, new_job
from tests.spark.conftest import SparkPlace
from tests.spark.events_kit import OTHER, QUEUE, batch_rows, fill, only_sqlite, only_valkey, trim


def _copied(spark: SparkSession, place: SparkPlace, folder: Path, **options: Any) -> StreamingQuery:
    """A query that has copied what was available into Parquet files."""
    source = spark.readStream.format("penstock").options(url=place.url, table="events", **options).load()
    written = source.writeStream.format("parquet").option("checkpointLocation", str(folder / "checkpoint"))
    query = written.trigger(availableNow=True).start(str(folder / "events"))
    query.awaitTermination()
    return query


def _jobs(spark: SparkSession, folder: Path) -> list[tuple[str, str]]:
    found = spark.read.parquet(str(folder / "events")).select("queue", "job").collect()
    return sorted((row["queue"], row["job"]) for row in found)


def test_a_batch_in_spark_has_the_rows_of_its_readers(spark: SparkSession, place: SparkPlace) -> None:
    """From several tasks, with every column."""
    fill(place, *(f"j{n}" for n in range(8)))
    fill(place, "x", queue=OTHER)
    found = [row.asDict() for row in place.read(spark, "events", minPartitions=3).collect()]

    assert [(row["queue"], row["seq"], row["cursor"], row["job"]) for row in found] == [
        (row["queue"], row["seq"], row["cursor"], row["job"]) for row in batch_rows(place, minPartitions=3)
    ]
    assert place.read(spark, "events", columns="seq,move").where("seq > 5").count() == 3


@only_valkey
def test_a_stream_goes_on_from_its_checkpoint(spark: SparkSession, place: SparkPlace, tmp_path: Path) -> None:
    """In batches of so many, with a queue that came meanwhile; and its place is known to the store."""
    fill(place, *(f"j{n}" for n in range(5)))
    first = _copied(spark, place, tmp_path, maxEventsPerTrigger=3)
    fill(place, "later")
    fill(place, "x", queue=OTHER)
    _copied(spark, place, tmp_path)
    readers = place.run(lambda store: store.readers.list_readers(QUEUE))

    sizes = [progress["numInputRows"] for progress in first.recentProgress if progress["numInputRows"]]
    assert sizes == [3, 2]
    assert _jobs(spark, tmp_path) == [("other", "x"), *(("q", f"j{n}") for n in range(5)), ("q", "later")]
    assert [each.seq for each in readers] == [6]
    assert readers[0].name.startswith("spark-")


@only_valkey
def test_a_stream_that_has_lost_events_fails_with_their_numbers(
    spark: SparkSession, place: SparkPlace, tmp_path: Path
) -> None:
    """Unless it may go on without them."""
    fill(place, "a")
    _copied(spark, place, tmp_path)
    fill(place, "b", "c")
    trim(place, 2)

    with pytest.raises(StreamingQueryException, match="events 2 to 2 of queue q were trimmed"):
        _copied(spark, place, tmp_path)
    _copied(spark, place, tmp_path, failOnDataLoss="false")
    found = spark.read.parquet(str(tmp_path / "events")).orderBy("seq").collect()
    assert [(row["seq"], row["move"]) for row in found] == [(1, "enqueue"), (2, "gap"), (3, "enqueue")]


@only_sqlite
def test_a_stream_follows_what_comes(spark: SparkSession, place: SparkPlace, tmp_path: Path) -> None:
    """Batch by batch, while it runs."""
    fill(place, "a")
    source = spark.readStream.format("penstock").options(url=place.url, table="events").load()
    query = source.writeStream.format("memory").queryName("followed").start()
    try:
        query.processAllAvailable()

        async def more(store: Store) -> None:
            await enqueue(store, QUEUE, [new_job("b"), new_job("c")])

        place.run(more)
        query.processAllAvailable()
        found = sorted(row["job"] for row in spark.table("followed").collect())
    finally:
        query.stop()

    assert found == ["a", "b", "c"]
