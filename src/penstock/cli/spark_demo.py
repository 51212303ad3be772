"""`penstock demo --spark`: the tables that the demo's events became, and what the audit says of them."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from penstock.cli.desk import Desk
from penstock.demo.stage import Show

if TYPE_CHECKING:
    from penstock.demo.spark import SparkReport

SHOWN: Final = 10
QUIET: Final = {"spark.ui.enabled": "false", "spark.log.level": "ERROR", "spark.sql.shuffle.partitions": "2"}


async def perform_with_tables(show: Show) -> "SparkReport":
    """The demo with the pipeline beside it."""
    from penstock.demo.spark import perform_on_spark
    from penstock.spark import session

    show.say("starting Spark")
    spark = session("penstock-demo", **QUIET)
    try:
        return await perform_on_spark(show, spark)
    finally:
        spark.stop()


def tell_tables(desk: Desk, found: "SparkReport") -> None:
    """Show the tables and the verdict."""
    broken = {str(rule): count for rule, count in found.verdict.by_rule.items()}
    desk.out.document(
        {
            "streamed": found.streamed,
            "events": found.done.events,
            "batches": found.done.batches,
            "clean": found.verdict.is_clean,
            "broken": broken,
        }
    )
    for exhibit in found.exhibits:
        desk.out.line()
        desk.out.line(exhibit.title)
        desk.out.table(exhibit.columns, exhibit.rows, right=_numbers(exhibit.columns, exhibit.rows))
    desk.out.line()
    read = f"{found.done.events} events in {found.done.batches} batches, {found.streamed} while jobs ran"
    said = "clean" if found.verdict.is_clean else ", ".join(f"{many} {rule}" for rule, many in broken.items())
    desk.out.line(f"tables: {read}; audit on Spark: {said}")


def _numbers(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> frozenset[str]:
    """The columns in which some row has a number."""
    return frozenset(
        column for at, column in enumerate(columns) if any(isinstance(row[at], int | float) for row in rows)
    )
