"""`penstock demo --spark`: the tables that the demo's events became, and what the audit says of them."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from penstock.cli.command_context import CommandContext
from penstock.demo.run import DemoOptions

if TYPE_CHECKING:
    from penstock.demo.spark_run import SparkReport

QUIET: Final = {"spark.ui.enabled": "false", "spark.log.level": "ERROR", "spark.sql.shuffle.partitions": "2"}


async def run_demo_with_tables(options: DemoOptions) -> "SparkReport":
    """The demo with the pipeline beside it."""
    from penstock.demo.spark_run import run_demo_on_spark
    from penstock.spark import session

    options.print_line("starting Spark")
    spark = session("penstock-demo", **QUIET)
    try:
        return await run_demo_on_spark(options, spark)
    finally:
        spark.stop()


def print_tables(context: CommandContext, found: "SparkReport") -> None:
    """Show the tables and the verdict."""
    broken = {str(rule): count for rule, count in found.verdict.by_rule.items()}
    context.out.document(
        {
            "streamed": found.streamed,
            "events": found.done.events,
            "batches": found.done.batches,
            "clean": found.verdict.is_clean,
            "broken": broken,
        }
    )
    for table in found.tables:
        context.out.line()
        context.out.line(table.title)
        context.out.table(table.columns, table.rows, right=_numbers(table.columns, table.rows))
    context.out.line()
    read = f"{found.done.events} events in {found.done.batches} batches, {found.streamed} while jobs ran"
    said = "clean" if found.verdict.is_clean else ", ".join(f"{many} {rule}" for rule, many in broken.items())
    context.out.line(f"tables: {read}; audit on Spark: {said}")


def _numbers(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> frozenset[str]:
    """The columns in which some row has a number."""
    return frozenset(
        column for at, column in enumerate(columns) if any(isinstance(row[at], int | float) for row in rows)
    )
