"""`penstock spark run`: the event log as tables of a lake."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Final

import typer

from penstock.cli.command_context import CommandContext
from penstock.cli.output import span, without_none
from penstock.core.errors import ConfigError, OptionError
from penstock.settings import seconds

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.spark.pipeline import Done

SECONDS_PER_LINE: Final = 5.0
QUIET: Final = {"spark.ui.enabled": "false", "spark.log.level": "ERROR"}
Out = Annotated[
    str,
    typer.Option(
        "--out",
        metavar="FOLDER",
        help="Folder of the Delta tables: a path, or a URL such as s3a://bucket/lake",
    ),
]
Master = Annotated[
    str, typer.Option(metavar="MASTER", help="URL of the Spark master, such as spark://host:7077")
]


async def run(
    context: CommandContext,
    out: Out,
    queue: Annotated[
        list[str] | None,
        typer.Option(
            help="Only this queue, such as mail; may be repeated", metavar="NAME", show_default="all queues"
        ),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Read the events that exist now, and exit")] = False,
    every: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="Interval between two reads of new events, such as 30s", show_default="5s"
        ),
    ] = None,
    start: Annotated[
        str | None,
        typer.Option(
            metavar="OFFSETS",
            help="Where a new folder starts in the log: earliest, latest, or cursors as JSON",
            show_default="earliest",
        ),
    ] = None,
    max_events: Annotated[
        str | None,
        typer.Option(
            metavar="N", help="Maximum number of events in a batch, such as 100000", show_default="1000000"
        ),
    ] = None,
    reader: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Name of a reader to register: events that it has not read are not trimmed",
            show_default="no reader",
        ),
    ] = None,
    allow_loss: Annotated[
        bool, typer.Option("--allow-loss", help="Continue after events that were trimmed, and record the gap")
    ] = False,
    master: Master = "local[*]",
) -> None:
    """Copy the event log into Delta tables: all events, one row per execution, and one per job and drive.

    Runs until stopped by SIGTERM or Ctrl-C, or with --once until the events that exist now are copied.
    Started again with the same folder, it continues where it stopped: no event is missed and none is copied
    twice.
    """
    if once and every is not None:
        raise OptionError("--every", every, "no --once beside it")
    options = without_none(
        url=context.settings.url or (None if context.app is None else context.app.url),
        tenants=context.tenant,
        queues=",".join(queue) if queue else None,
        startingOffsets=start,
        maxEventsPerTrigger=max_events,
        readerName=reader,
        failOnDataLoss="false" if allow_loss else None,
    )
    if "url" not in options:
        raise ConfigError("no store is named: give --url, set PENSTOCK_URL, or put url in penstock.toml")
    wait = None if once else seconds("--every", every or "5s")
    began = time.monotonic()
    done = _run(context, out, options, wait, master)
    took = time.monotonic() - began
    figures = {name: getattr(done, name) for name in ("events", "batches", "duplicates", "problems", "gaps")}
    context.out.document({"out": out, **figures, "seconds": round(took, 1)})
    context.out.fields([*figures.items(), ("took", span(round(took * 1000))), ("tables", out)])


def _run(
    context: CommandContext, out: str, options: dict[str, str], every: float | None, master: str
) -> "Done":
    # First, for it says what to install.
    from penstock.spark import session  # noqa: F401  # isort: skip
    from penstock.spark.options import read_options
    from penstock.spark.run import Run, run
    from penstock.spark.stores import refuse_missing_file

    # Before a Java is started.
    read_options({**options, "table": "events"}, role="readStream")
    refuse_missing_file(options["url"])
    with started("penstock", master) as spark, _telling(context) as tell:
        return run(spark, Run(out=out, options=options, every=every), tell)


@contextmanager
def started(name: str, master: str, **conf: str) -> Iterator["SparkSession"]:
    """A session for the time of the block. What Spark fails with there is raised as one line."""
    # First, for it says what to install.
    from penstock.spark import session  # isort: skip
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    from penstock.spark.run import plain

    spark = session(name, master, **{**QUIET, **conf})
    try:
        yield spark
    except (PySparkException, Py4JError) as error:
        raise plain(error) from error
    finally:
        spark.stop()


@contextmanager
def _telling(context: CommandContext) -> Iterator[Callable[["Done"], None]]:
    """How to tell what goes on: a line that changes on a terminal, now and then a line elsewhere."""
    if context.out.json or not sys.stdout.isatty():
        yield _Lines(context)
        return
    from rich import progress as bars

    columns = (bars.SpinnerColumn(), bars.TextColumn("{task.description}"), bars.TimeElapsedColumn())
    with bars.Progress(*columns, console=context.out.console, transient=True) as bar:
        task = bar.add_task("starting")
        yield lambda done: bar.update(task, description=_said(done))


class _Lines:
    """A line whenever something was done, but not too often."""

    def __init__(self, context: CommandContext) -> None:
        self._context = context
        self._next = 0.0
        self._said = ""

    def __call__(self, done: "Done") -> None:
        text = _said(done)
        if done.batches and text != self._said and time.monotonic() >= self._next:
            self._next = time.monotonic() + SECONDS_PER_LINE
            self._said = text
            self._context.out.note(text)


def _said(done: "Done") -> str:
    wrong = [
        f"{count} {name}"
        for name, count in (("duplicates", done.duplicates), ("problems", done.problems), ("gaps", done.gaps))
        if count
    ]
    lag = [] if done.lag_ms is None else [f"lag {span(done.lag_ms)}"]
    rate = [] if done.rate is None else [f"{done.rate:,.0f} events/s"]
    return ", ".join([f"{done.events} events in {done.batches} batches", *rate, *lag, *wrong])
