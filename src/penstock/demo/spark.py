"""The demo with the pipeline beside it: events stream into tables while jobs run and a worker dies."""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.demo.audit import Report
from penstock.demo.stage import Show, perform

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.spark.audit import Verdict
    from penstock.spark.pipeline import Done

EVERY_SECONDS = 1.0
SHOWN = 8


class Exhibit(msgspec.Struct, frozen=True):
    """A table to show: its title, its columns and some of its rows."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]


class SparkReport(msgspec.Struct, frozen=True, kw_only=True):
    """How the demo went, what the pipeline did, what is in its tables, and what the audit says of them."""

    report: Report
    streamed: int
    done: "Done"
    exhibits: Sequence[Exhibit]
    verdict: "Verdict"

    @property
    def is_proven(self) -> bool:
        """True when both checkers are content, and have seen the same events."""
        is_same = self.done.events == self.report.verdict.events == self.verdict.events
        return self.report.is_proven and self.verdict.is_clean and is_same


async def perform_on_spark(show: Show, spark: "SparkSession") -> SparkReport:
    """The demo, with its events read as they come; then the rest of them, the tables and the audit."""
    from penstock.spark import tables
    from penstock.spark.audit import audit
    from penstock.spark.pipeline import Done, Pipeline

    out = str(show.directory / "tables")
    options = {"url": f"sqlite:///{show.directory / 'jobs.db'}?durability=server"}
    beside = Pipeline(spark, out, options, every=EVERY_SECONDS)
    starting: list[asyncio.Task[None]] = []

    def say(text: str) -> None:
        # From its first words on there is a store to read.
        if not starting:
            starting.append(asyncio.create_task(asyncio.to_thread(beside.start)))
        show.say(text)

    report = await perform(msgspec.structs.replace(show, say=say))
    await asyncio.gather(*starting)
    streamed = beside.done.events
    show.say(f"{streamed} events are in the tables already; now the rest")
    await asyncio.to_thread(beside.stop)
    rest = Pipeline(spark, out, options)
    await asyncio.to_thread(rest.start)
    while not await asyncio.to_thread(rest.wait, 1.0):
        pass
    done = Done(beside.done.batches + rest.done.batches, beside.done.events + rest.done.events)
    show.say("auditing the table of events")
    verdict = await asyncio.to_thread(audit, tables.read(spark, out, "events"))
    exhibits = await asyncio.to_thread(_exhibits, spark, out)
    return SparkReport(report=report, streamed=streamed, done=done, exhibits=exhibits, verdict=verdict)


def _exhibits(spark: "SparkSession", out: str) -> list[Exhibit]:
    from penstock.spark import tables

    attempts = tables.read(spark, out, "attempts").cache()
    jobs = tables.read(spark, out, "jobs").cache()
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
    return [_exhibit(title, spark.sql(query)) for title, query in shown.items()]


def _exhibit(title: str, rows: "DataFrame") -> Exhibit:
    return Exhibit(title, rows.columns, [tuple(row) for row in rows.limit(SHOWN).collect()])
