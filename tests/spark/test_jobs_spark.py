"""`jobs` and `dlq` through Spark itself: discovery, pushdown or not, SQL, and errors as users see them."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final

import msgspec
import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession

from penstock.core.moves import Complete
from penstock.stores.protocol import Store
from tests.conformance.having import on
from tests.conformance.stores import STORES
from tests.spark.conftest import SparkPlace
from tests.spark.jobs import QUEUE, fill, new_job, row_of

PUSHDOWN: Final = "spark.sql.python.filterPushdown.enabled"
on_sqlite: Final = on([kind for kind in STORES if kind.name == "sqlite"])


@pytest.fixture
def unpushed(spark: SparkSession) -> Iterator[None]:
    """Filters stay with Spark, which is what it does unless told otherwise."""
    spark.conf.set(PUSHDOWN, "false")
    yield
    spark.conf.set(PUSHDOWN, "true")


def test_rows_and_filters_are_those_of_the_store(spark: SparkSession, place: SparkPlace) -> None:
    check_rows_and_filters(spark, place)


@on_sqlite
def test_rows_and_filters_are_the_same_without_pushdown(
    spark: SparkSession, place: SparkPlace, unpushed: None
) -> None:
    check_rows_and_filters(spark, place)


def check_rows_and_filters(spark: SparkSession, place: SparkPlace) -> None:
    """Every column of every job, and what filters leave of them."""
    jobs = place.run(fill)
    wanted = sorted((row_of(job) for job in jobs if job.tenant == "default"), key=lambda row: str(row["id"]))

    rows = [row.asDict() for row in place.read(spark).orderBy("id").collect()]
    dead = place.read(spark).where("state = 'dead' and priority > 3 and ended_at is not null").collect()
    none = place.read(spark).where("state = 'dead' and priority > 8").count()

    assert rows == naive(wanted)
    assert [row["id"] for row in dead] == ["dead"]
    assert none == 0


def naive(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """As Spark gives times back: of the local zone, without a name."""
    return [
        {
            name: value.astimezone().replace(tzinfo=None) if isinstance(value, datetime) else value
            for name, value in row.items()
        }
        for row in rows
    ]


def test_a_pushed_filter_reads_fewer_rows_from_the_store(spark: SparkSession, place: SparkPlace) -> None:
    """Seen where Spark counts what scans give out."""

    async def hundred(store: Store) -> None:
        await store.moves.enqueue(QUEUE, [new_job(f"j{at}") for at in range(100)])
        (job,) = (await store.moves.claim(QUEUE, worker="w", limit=1, lease_ms=60_000)).jobs
        await store.moves.settle(QUEUE, [Complete(job.id, job.token)])

    place.run(hundred)
    frame = place.read(spark, columns="id,state").where("state = 'completed'")

    assert frame.count() == 1
    assert scanned(frame.where("id != ''")) == 1


def scanned(frame: Any) -> int:
    """How many rows the scan of a query gave out."""
    executed = frame._jdf.queryExecution().executedPlan()
    frame.collect()
    leaf = executed.collectLeaves().head()
    return int(leaf.metrics().apply("numOutputRows").value())


@on_sqlite
def test_the_format_is_found_without_being_registered(spark: SparkSession, place: SparkPlace) -> None:
    """Spark looks for modules called pyspark_… by itself; a new session has nothing registered."""
    place.run(fill)

    assert place.read(spark.newSession(), "dlq").count() == 1


@on_sqlite
def test_a_view_in_sql_reads_the_table(spark: SparkSession, place: SparkPlace) -> None:
    place.run(fill)
    spark.sql(f"CREATE TEMPORARY VIEW letters USING penstock OPTIONS (url '{place.url}', table 'dlq')")
    try:
        assert [row["id"] for row in spark.sql("SELECT id FROM letters").collect()] == ["dead"]
    finally:
        spark.catalog.dropTempView("letters")


@on_sqlite
def test_a_schema_or_columns_narrow_what_is_read(spark: SparkSession, place: SparkPlace) -> None:
    place.run(fill)
    reader = spark.read.format("penstock").option("url", place.url)

    assert reader.schema("id string, priority int").load().columns == ["id", "priority"]
    assert reader.schema("id string, priority int").load().count() == 9
    assert place.read(spark, columns="priority,id").columns == ["priority", "id"]


def test_json_is_read_by_a_schema_or_as_variant(spark: SparkSession, place: SparkPlace) -> None:
    """What does not fit the type is null, as it is with `from_json`."""

    async def three(store: Store) -> None:
        payloads = [b'{"to": "ada", "n": 5, "more": {"x": [1, 2.5]}}', b'{"to": 7}', b"{}"]
        new = [msgspec.structs.replace(new_job(f"j{at}"), payload=each) for at, each in enumerate(payloads)]
        await store.moves.enqueue(QUEUE, new)

    place.run(three)
    reader = spark.read.format("penstock").options(url=place.url, queue=QUEUE.name)

    typed = reader.schema("id string, payload struct<to: string, n: bigint>, result struct<a: int>").load()
    assert [tuple(row) for row in typed.orderBy("id").collect()] == [
        ("j0", ("ada", 5), None),
        ("j1", None, None),
        ("j2", (None, None), None),
    ]
    variant = reader.schema("id string, payload variant").load()
    found = variant.orderBy("id").selectExpr("variant_get(payload, '$.more.x[1]', 'double') AS x").collect()
    assert [row.x for row in found] == [2.5, None, None]
    for wrong in ("payload map<string, string>", "payload timestamp", "task variant"):
        with pytest.raises(PySparkException, match=r"schema: found '(payload|task) "):
            reader.schema(wrong).load().collect()


@on_sqlite
def test_errors_name_the_option_and_what_is_wanted(spark: SparkSession, place: SparkPlace) -> None:
    cases = {
        "did you mean columns?": {"colums": "id"},
        "wanted some of tenant, queue, id": {"columns": "nothing"},
        "minPartitions: found 'many', wanted a whole number": {"minPartitions": "many"},
        "wanted it with readStream": {"maxEventsPerTrigger": "1", "table": "events"},
        "no queue 'nowhere' of tenant default": {"queue": "nowhere"},
    }
    place.run(fill)
    for said, options in cases.items():
        with pytest.raises(PySparkException) as caught:
            place.read(spark, **{"table": "jobs", **options}).collect()
        assert said in str(caught.value), options


@on_sqlite
def test_a_file_that_is_not_there_is_not_made(spark: SparkSession, place: SparkPlace) -> None:
    with pytest.raises(AnalysisException, match="there is no such file"):
        place.read(spark).collect()
