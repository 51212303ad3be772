"""`penstock spark run` and `penstock spark compact`: the event log as tables on files."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Final

import typer

from penstock.cli.desk import Desk
from penstock.cli.output import span, without_none
from penstock.core.errors import ConfigError, OptionError
from penstock.settings import seconds

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.spark.pipeline import Done

SECONDS_PER_LINE: Final = 5.0
QUIET: Final = {"spark.ui.enabled": "false", "spark.log.level": "ERROR"}
Out = Annotated[
    str, typer.Option("--out", metavar="FOLDER", help="A path, or an address such as s3a://bucket/jobs")
]
Master = Annotated[str, typer.Option(metavar="MASTER", help="Where Spark runs")]


async def run(
    desk: Desk,
    out: Out,
    queue: Annotated[
        list[str] | None, typer.Option(help="Only this queue; may be repeated", metavar="NAME")
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Read what is there, and end")] = False,
    every: Annotated[
        str | None, typer.Option(metavar="TIME", help="How often to look for new events; 5s if left out")
    ] = None,
    start: Annotated[
        str | None,
        typer.Option(metavar="WHERE", help="Where a new folder begins: earliest, latest, or cursors as JSON"),
    ] = None,
    max_events: Annotated[
        str | None, typer.Option(metavar="N", help="At most so many events in a batch")
    ] = None,
    reader: Annotated[
        str | None, typer.Option(metavar="NAME", help="As whom to register: what is unread is not trimmed")
    ] = None,
    allow_loss: Annotated[
        bool, typer.Option("--allow-loss", help="Go on over events that were trimmed, with a row for the gap")
    ] = False,
    master: Master = "local[*]",
) -> None:
    """Bring the event log into tables: events as they came, one row per attempt, one per job and drive.

    Goes on until it is told to stop (SIGTERM or Ctrl-C), or with --once until all that is there now is read.
    Started again with the same folder, it goes on where it was; nothing is missed and nothing comes twice.
    """
    if once and every is not None:
        raise OptionError("--every", every, "it without --once")
    options = without_none(
        url=desk.settings.url or (None if desk.app is None else desk.app.url),
        tenants=desk.tenant,
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
    done = _run(desk, out, options, wait, master)
    took = time.monotonic() - began
    figures = {name: getattr(done, name) for name in ("events", "batches", "duplicates", "problems", "gaps")}
    desk.out.document({"out": out, **figures, "seconds": round(took, 1)})
    desk.out.fields([*figures.items(), ("took", span(round(took * 1000))), ("tables", out)])


async def compact(
    desk: Desk,
    out: Out,
    table: Annotated[
        str | None, typer.Option(metavar="NAME", help="events, attempts or jobs; all if left out")
    ] = None,
    target: Annotated[int, typer.Option(metavar="MB", help="How large batches may become", min=1)] = 128,
    grace: Annotated[
        str,
        typer.Option(
            metavar="TIME", help="How long replaced files stay: longer than any reader or batch takes"
        ),
    ] = "1h",
    master: Master = "local[*]",
) -> None:
    """Make small batches of the tables large, and remove files that were replaced.

    It may run beside `penstock spark run`, and be stopped at any time.
    """
    grace_ms = round(seconds("--grace", grace) * 1000)
    from penstock.spark import tables
    from penstock.spark.tables.files import is_address

    names = tables.NAMES if table is None else (table,)
    # Before a Java is started; behind an address it takes one.
    if not is_address(out):
        tables.refuse_none(out, names)
    with started("penstock", master) as spark:
        if is_address(out):
            tables.refuse_none(out, names, spark)
        done = [
            tables.compact(spark, out, name, target_bytes=target << 20, grace_ms=grace_ms) for name in names
        ]
    for each in done:
        desk.out.document(
            {"table": each.table, "before": each.before, "after": each.after, "removed": each.removed}
        )
    desk.out.table(
        ["table", "batches before", "after", "folders removed"],
        [(each.table, each.before, each.after, each.removed) for each in done],
        right=frozenset({"batches before", "after", "folders removed"}),
    )


def _run(desk: Desk, out: str, options: dict[str, str], every: float | None, master: str) -> "Done":
    # First, for it says what to install.
    from penstock.spark import session  # noqa: F401  # isort: skip
    from penstock.spark.options import read_options
    from penstock.spark.run import Run, run
    from penstock.spark.stores import refuse_missing_file

    # Before a Java is started.
    read_options({**options, "table": "events"}, role="readStream")
    refuse_missing_file(options["url"])
    with started("penstock", master) as spark, _telling(desk) as tell:
        return run(spark, Run(out=out, options=options, every=every), tell)


@contextmanager
def started(name: str, master: str) -> Iterator["SparkSession"]:
    """A session for the time of the block. What Spark fails with there is raised as one line."""
    # First, for it says what to install.
    from penstock.spark import session  # isort: skip
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    from penstock.spark.run import plain

    spark = session(name, master, **QUIET)
    try:
        yield spark
    except (PySparkException, Py4JError) as error:
        raise plain(error) from error
    finally:
        spark.stop()


@contextmanager
def _telling(desk: Desk) -> Iterator[Callable[["Done"], None]]:
    """How to tell what goes on: a line that changes on a terminal, now and then a line elsewhere."""
    if desk.out.json or not sys.stdout.isatty():
        yield _Lines(desk)
        return
    from rich import progress as bars

    columns = (bars.SpinnerColumn(), bars.TextColumn("{task.description}"), bars.TimeElapsedColumn())
    with bars.Progress(*columns, console=desk.out.console, transient=True) as bar:
        task = bar.add_task("starting")
        yield lambda done: bar.update(task, description=_said(done))


class _Lines:
    """A line whenever something was done, but not too often."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._next = 0.0
        self._said = ""

    def __call__(self, done: "Done") -> None:
        text = _said(done)
        if done.batches and text != self._said and time.monotonic() >= self._next:
            self._next = time.monotonic() + SECONDS_PER_LINE
            self._said = text
            self._desk.out.note(text)


def _said(done: "Done") -> str:
    wrong = [
        f"{count} {name}"
        for name, count in (("duplicates", done.duplicates), ("problems", done.problems), ("gaps", done.gaps))
        if count
    ]
    lag = [] if done.lag_ms is None else [f"lag {span(done.lag_ms)}"]
    return ", ".join([f"{done.events} events in {done.batches} batches", *lag, *wrong])
