"""Jobs read from PostgreSQL, beside other ways to read them; and some of them only."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import psycopg
from pyspark.sql import DataFrame

from benchmarks.cases import OURS, Case
from benchmarks.postgres import server as servers
from benchmarks.spark.filling import QUEUE, SHARE
from benchmarks.spark.meter import measured_session, timed
from benchmarks.spark.plan import Plan
from benchmarks.spawn import Figures, run

PSYCOPG: Final = "psycopg"
JDBC: Final = "Spark's JDBC reader"
NONE: Final = "all"
PUSHED: Final = "filter"
OPTIONED: Final = "option"
_MODULE: Final = "benchmarks.spark.reading"
_UNITS: Final = {"rate": "jobs/s", "cpu": "processor s per million jobs"}
_PART: Final = 10_000


def reading(plan: Plan) -> Iterator[list[Case]]:
    """All jobs, through Spark and without it."""
    cases = [
        Case("jobs", "", OURS, "table jobs", partial(_side, "through_spark", plan), _UNITS),
        Case("jobs", "", PSYCOPG, "a server-side cursor", partial(_side, "by_psycopg", plan), _UNITS),
    ]
    if plan.jdbc is not None:
        cases.append(
            Case(
                "jobs",
                "",
                JDBC,
                "two partitions",
                partial(_side, "by_jdbc", plan, jar=str(plan.jdbc)),
                _UNITS,
            )
        )
    yield cases


def filtering(plan: Plan) -> Iterator[list[Case]]:
    """Jobs in a state that one of a hundred is in."""
    units = {how: f"s, {how}" for how in (NONE, PUSHED, OPTIONED)}
    yield [Case("filter", "", OURS, "table jobs", partial(_side, "some", plan), units)]


def _side(role: str, plan: Plan, folder: Path, **more: Any) -> Figures:
    with servers.running() as server:
        run("benchmarks.spark.filling", "fill", url=server.url, jobs=plan.jobs)
        return run(_MODULE, role, url=server.url, jobs=plan.jobs, **more)


def through_spark(url: str, jobs: int) -> Figures:
    """Every column of every job, into nothing."""
    spark = measured_session()
    table = spark.read.format("penstock").options(url=url, table="jobs", queue=QUEUE).load()
    return _rate(table, jobs)


def by_jdbc(url: str, jobs: int, jar: str) -> Figures:
    """The same rows as the table has them, split by the place that jobs wait in."""
    spark = measured_session(**{"spark.jars": jar})
    parts = urlsplit(url)
    where = f"jdbc:postgresql://{parts.hostname}:{parts.port}{parts.path}"
    asked: dict[str, Any] = {
        "url": where,
        "user": parts.username or "",
        "password": parts.password or "",
        "driver": "org.postgresql.Driver",
        "dbtable": "(SELECT job.*, job.place AS part FROM penstock.job) AS jobs",
        "partitionColumn": "part",
        "lowerBound": 0,
        "upperBound": jobs,
        "numPartitions": 2,
        "fetchsize": _PART,
    }
    return _rate(spark.read.format("jdbc").options(**asked).load(), jobs)


def by_psycopg(url: str, jobs: int) -> Figures:
    """One process, rows as tuples."""

    def read() -> int:
        with psycopg.connect(url) as connection, connection.cursor(name="jobs") as cursor:
            cursor.itersize = _PART
            cursor.execute("SELECT * FROM penstock.job")
            return sum(1 for _ in cursor)

    _expect(read(), jobs)
    return timed(read, jobs)


def some(url: str, jobs: int) -> Figures:
    """Seconds until all jobs, or the delayed ones, are there."""
    spark = measured_session()
    reader = spark.read.format("penstock").options(url=url, table="jobs", queue=QUEUE)
    every = reader.load()
    tables = {
        NONE: (every, jobs),
        PUSHED: (every.where("state = 'delayed'"), jobs // SHARE),
        OPTIONED: (reader.option("states", "delayed").load(), jobs // SHARE),
    }
    return {how: count / _rate(table, count)["rate"] for how, (table, count) in tables.items()}


def _rate(table: DataFrame, jobs: int) -> Figures:
    """The count warms up, and says that it is all there."""
    _expect(table.count(), jobs)
    _drain(table)
    return timed(lambda: _drain(table), jobs)


def _drain(table: DataFrame) -> None:
    table.write.format("noop").mode("overwrite").save()


def _expect(found: int, jobs: int) -> None:
    if found != jobs:
        raise RuntimeError(f"{found} jobs were read, not {jobs}")
