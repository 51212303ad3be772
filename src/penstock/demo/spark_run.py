"""Running the demo while a Spark pipeline streams its events into tables."""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.demo.audit import Report
from penstock.demo.run import DemoOptions, run_demo

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.spark.audit import Verdict
    from penstock.spark.pipeline import Done

EVERY_SECONDS = 1.0
SHOWN = 8
CORES = 2
"""Workers that are started before the jobs are."""


class ResultTable(msgspec.Struct, frozen=True):
    """A table to print: its title, its columns and some of its rows."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]


class SparkReport(msgspec.Struct, frozen=True, kw_only=True):
    """The result of the demo, of the pipeline and of the audit on Spark, and tables to print."""

    report: Report
    streamed: int
    done: "Done"
    tables: Sequence[ResultTable]
    verdict: "Verdict"

    @property
    def is_proven(self) -> bool:
        """True if both checkers found no breach, and read the same events."""
        is_same = self.done.events == self.report.verdict.events == self.verdict.events
        return self.report.is_proven and self.verdict.is_clean and is_same


async def run_demo_on_spark(options: DemoOptions, spark: "SparkSession") -> SparkReport:
    """Run the demo while its events are streamed; then stream the rest, and audit the tables."""
    from penstock.spark import lake
    from penstock.spark.audit import audit
    from penstock.spark.lake.executors import on_executors
    from penstock.spark.pipeline import Done, Pipeline

    options.print_line("starting the workers of Spark")
    await asyncio.to_thread(on_executors, spark, _load, range(CORES))
    out = str(options.directory / "lake")
    source = {"url": f"sqlite:///{options.directory / 'jobs.db'}?durability=server"}
    beside = Pipeline(spark, out, source, every=EVERY_SECONDS)
    starting: list[asyncio.Task[None]] = []

    def print_line(text: str) -> None:
        # The store exists once the demo prints its first line.
        if not starting:
            starting.append(asyncio.create_task(asyncio.to_thread(beside.start)))
        options.print_line(text)

    report = await run_demo(msgspec.structs.replace(options, print_line=print_line))
    await asyncio.gather(*starting)
    streamed = beside.done.events
    options.print_line(f"{streamed} events are in the tables already; streaming the rest")
    await asyncio.to_thread(beside.stop)
    rest = Pipeline(spark, out, source)
    await asyncio.to_thread(rest.start)
    while not await asyncio.to_thread(rest.wait, 1.0):
        pass
    done = Done(beside.done.batches + rest.done.batches, beside.done.events + rest.done.events)
    options.print_line("auditing the table of events")
    verdict = await asyncio.to_thread(audit, lake.events(spark, out))
    result_tables = await asyncio.to_thread(_result_tables, spark, out)
    return SparkReport(report=report, streamed=streamed, done=done, tables=result_tables, verdict=verdict)


def _load(_number: int) -> None:
    """Have a worker of Spark import what it will work with: jobs of the demo are done sooner than that."""
    from penstock.spark.lake.silver import step  # noqa: F401


def _result_tables(spark: "SparkSession", out: str) -> list[ResultTable]:
    from penstock.spark import lake

    attempts = lake.read(spark, out, "attempts").cache()
    jobs = lake.read(spark, out, "jobs").cache()
    attempts.createOrReplaceTempView("demo_attempts")
    jobs.createOrReplaceTempView("demo_jobs")
    shown = {
        "jobs, by how they ended": """
            SELECT state, count(*) AS jobs, sum(attempts) AS attempts, sum(deliveries) AS deliveries,
                round(avg(total_ms)) AS mean_ms
            FROM demo_jobs GROUP BY state ORDER BY jobs DESC""",
        "attempts, by outcome": """
            SELECT outcome, reason, count(*) AS attempts,
                percentile_approx(wait_ms, 0.5) AS wait_p50, percentile_approx(wait_ms, 0.99) AS wait_p99,
                percentile_approx(run_ms, 0.5) AS run_p50, percentile_approx(run_ms, 0.99) AS run_p99
            FROM demo_attempts GROUP BY outcome, reason ORDER BY attempts DESC""",
        "throughput, the busiest seconds": """
            SELECT date_format(date_trunc('second', ended_at), 'HH:mm:ss') AS second, count(*) AS ended
            FROM demo_jobs GROUP BY second ORDER BY ended DESC, second""",
        "attempts of a worker that was killed": """
            SELECT job, attempt, worker, outcome, state, wait_ms, run_ms
            FROM demo_attempts WHERE outcome = 'expire' ORDER BY claimed_at, job""",
    }
    return [_result_table(title, spark.sql(query)) for title, query in shown.items()]


def _result_table(title: str, rows: "DataFrame") -> ResultTable:
    return ResultTable(title, rows.columns, [tuple(row) for row in rows.limit(SHOWN).collect()])
