"""The sink through Spark: tasks that fail, queries that are restarted, what is refused at planning."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, DataFrameWriter, SparkSession

from penstock.core.states import State
from penstock.spark.sink.write_scope import slots_here
from tests.spark.conftest import SparkPlace
from tests.spark.sink_kit import GIVEN, QUEUE, jobs_of, numbers_in


@pytest.fixture
def here(tmp_path: Path) -> SparkPlace:
    """One store, where it does not matter which."""
    return SparkPlace("sqlite", f"sqlite:///{tmp_path / 'jobs.db'}")


def into(rows: DataFrame, place: SparkPlace, **options: Any) -> DataFrameWriter:
    given = {
        name: value for name, value in ({"url": place.url} | GIVEN | options).items() if value is not None
    }
    return rows.write.format("penstock").mode("append").options(**given)


def stumbling(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows; the first try of a task fails half-way through them."""
    context = TaskContext.get()
    assert context is not None
    for batch in batches:
        half = batch.num_rows // 2
        yield batch.slice(0, half)
        if context.attemptNumber() == 0:
            raise RuntimeError("this task stumbles once")
        yield batch.slice(half)


def test_tasks_that_fail_once_write_every_row_once(
    spark: SparkSession, place: SparkPlace, tmp_path: Path
) -> None:
    """Bad rows too; and a second run under the same id writes nothing."""
    rows = spark.range(0, 200, 1, 3).selectExpr("id AS n", "IF(id % 50 = 7, 99, 5) AS _priority")
    bad, report = tmp_path / "bad", tmp_path / "report"
    given = {"writeId": "w", "quarantine": str(bad), "report": str(report)}
    into(rows.mapInArrow(stumbling, rows.schema), place, **given).save()
    first = _report(report)
    into(rows.repartition(2), place, **given).save()

    assert numbers_in(place) == [n for n in range(200) if n % 50 != 7]
    assert first["applied"] + first["already"] == _report(report)["already"] == 196
    assert first["bad"] == {"_priority": 4}
    aside = spark.read.parquet(str(bad)).selectExpr("from_json(row, 'n INT').n", "field", "write_id")
    assert sorted(map(tuple, aside.collect())) == [(n, "_priority", "w") for n in (7, 57, 107, 157)]


def test_a_restarted_query_writes_every_row_once(
    spark: SparkSession, here: SparkPlace, tmp_path: Path
) -> None:
    """Its id is that of its checkpoint: a micro-batch that is run again finds its jobs there."""
    source, checkpoint, bad = tmp_path / "source", tmp_path / "checkpoint", tmp_path / "bad"
    source.mkdir()

    def run() -> str:
        rows = spark.readStream.schema("n INT, _priority INT").json(str(source)).repartition(2)
        options = {"url": here.url, "quarantine": str(bad), "checkpointLocation": str(checkpoint)} | GIVEN
        query = rows.writeStream.format("penstock").options(**options).trigger(availableNow=True).start()
        query.awaitTermination()
        return str(query.id)

    (source / "a.json").write_text('{"n": 1}\n{"n": 2, "_priority": 99}\n')
    query = run()
    (source / "b.json").write_text('{"n": 3}\n{"n": 4}\n')
    run()
    # As a driver leaves it that dies before it notes that the batch is done.
    for name in ("1", ".1.crc"):
        (checkpoint / "commits" / name).unlink()
    again = run()

    assert numbers_in(here) == [1, 3, 4]
    assert again == query
    (row,) = spark.read.parquet(str(bad)).collect()
    assert (row.write_id, row.batch_id, row.field) == (query, 0, "_priority")


def test_a_write_within_a_micro_batch_has_the_id_of_its_query(
    spark: SparkSession, here: SparkPlace, tmp_path: Path
) -> None:
    """So that `foreachBatch` is as safe as a sink of its own."""
    source, checkpoint = tmp_path / "source", tmp_path / "checkpoint"
    source.mkdir()
    (source / "a.json").write_text('{"n": 1}\n')

    def run() -> None:
        rows = spark.readStream.schema("n INT").json(str(source))
        stream = rows.writeStream.foreachBatch(lambda batch, _: into(batch, here).save())
        stream.option("checkpointLocation", str(checkpoint)).trigger(
            availableNow=True
        ).start().awaitTermination()

    run()
    shutil.rmtree(checkpoint / "commits")
    run()

    assert numbers_in(here) == [1]


def test_rows_of_the_dead_letters_can_be_redriven_as_they_are(spark: SparkSession, place: SparkPlace) -> None:
    """Read, filtered and written back; once more changes nothing."""
    into(spark.range(3).selectExpr("id AS n"), place).save()
    place.run(lambda store: _cancel(store, 2))
    given = {"operation": "redrive", "task": None, "keyColumns": None, "queue": None, "declare": None}
    ended = place.read(spark, states="cancelled").where("payload LIKE '%\"n\":1}'").localCheckpoint()
    for _ in range(2):
        into(ended, place, **given).save()

    states = {job.payload: job.state for job in place.run(jobs_of)}
    assert states == {
        b'{"n":0}': State.CANCELLED,
        b'{"n":1}': State.PENDING,
        b'{"n":2}': State.PENDING,
    }


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        ("id AS n", {"keyColumns": None}, "keyColumns: found None, wanted the columns that tell rows apart"),
        ("id AS n", {"task": None}, "_task: found no such column"),
        ("id AS n, 1 AS _prio", {}, "_prio: found an unknown option.*did you mean _priority"),
        ("id AS n, DATE'2026-01-01' AS _priority", {}, "_priority: found date, wanted int or string"),
        ("id AS n", {"operation": "redrive", "keyColumns": None, "task": None}, "job: found no such column"),
    ],
)
def test_what_cannot_be_written_is_refused_before_anything_is(
    spark: SparkSession, here: SparkPlace, tmp_path: Path, columns: str, options: dict[str, Any], message: str
) -> None:
    """At planning, by the column's name."""
    with pytest.raises(PySparkException, match=message):
        into(spark.range(1).selectExpr(*columns.split(", ")), here, **options).save()

    assert not (tmp_path / "jobs.db").exists()


def test_a_queue_is_never_overwritten(spark: SparkSession, here: SparkPlace) -> None:
    """Whatever mode is asked for."""
    with pytest.raises(PySparkException, match=r"mode: found 'overwrite', wanted mode"):
        into(spark.range(1).selectExpr("id AS n"), here).mode("overwrite").save()


def test_types_come_through_spark_as_documented(spark: SparkSession, here: SparkPlace) -> None:
    """Times are in UTC, whatever the session's zone is."""
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        row = spark.sql(
            "SELECT 1 AS n, CAST(1.50 AS DECIMAL(5,2)) AS d, TIMESTAMP'2026-01-31T12:00:00Z' AS t, "
            "array(TIMESTAMP'2026-01-31T12:00:00Z') AS ts, DATE'2026-01-31' AS day, X'00FF' AS b, "
            "map('k', struct(1 AS x)) AS m, INTERVAL '90' SECOND AS i, INTERVAL '60' SECOND AS _delay"
        )
        into(row, here).save()
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")

    (job,) = here.run(jobs_of)
    assert msgspec.json.decode(job.payload) == {
        "n": 1,
        "d": "1.50",
        "t": "2026-01-31T12:00:00Z",
        "ts": ["2026-01-31T12:00:00Z"],
        "day": "2026-01-31",
        "b": "AP8=",
        "m": {"k": {"x": 1}},
        "i": "PT90S",
    }
    assert job.state is State.DELAYED


def test_a_task_knows_how_many_may_run_at_once(spark: SparkSession) -> None:
    """By the settings of the session: they share the rate."""

    def slots(_: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"slots": pa.array([slots_here()])})

    found = spark.range(0, 4, 1, 2).mapInArrow(slots, "slots LONG").collect()

    assert [row.slots for row in found] == [2, 2]


async def _cancel(store: Any, fewer: int) -> None:
    jobs = sorted(await jobs_of(store), key=lambda job: job.payload)
    await store.moves.cancel(QUEUE, [job.id for job in jobs[:fewer]])


def _report(folder: Path) -> dict[str, Any]:
    (report,) = folder.iterdir()
    told: dict[str, Any] = msgspec.json.decode(report.read_bytes())
    return told
