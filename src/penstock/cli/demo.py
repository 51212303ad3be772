"""`penstock demo`: watch Penstock lose a worker and no job."""

import asyncio
import secrets
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated, Final

import typer

from penstock.cli.desk import Desk, setting
from penstock.cli.output import without_none
from penstock.cli.spark_demo import perform_with_tables, tell_tables
from penstock.core.errors import ConfigError
from penstock.core.states import LIVE, State
from penstock.demo.audit import Report
from penstock.demo.stage import Show, perform
from penstock.stores.private_files import create_private_folder

SHOWN: Final = 10
SECONDS_PER_LINE: Final = 1.0
Progress = Callable[[dict[State, int]], None]


async def demo(
    desk: Desk,
    jobs: Annotated[str | None, setting("demo.jobs", "How many jobs", metavar="N")] = None,
    workers: Annotated[str | None, setting("demo.workers", "How many worker processes", metavar="N")] = None,
    seed: Annotated[
        str | None, setting("demo.seed", "Fixes what each job is fated to do", metavar="N")
    ] = None,
    dir: Annotated[str | None, setting("demo.dir", "Keep the files here", metavar="DIR")] = None,  # noqa: A002
    inject_loss: Annotated[
        bool, typer.Option("--inject-loss", help="Lose a job on purpose; it is noticed")
    ] = False,
    spark: Annotated[
        bool, typer.Option("--spark", help="Stream the events into tables too, and audit them on Spark")
    ] = False,
) -> None:
    """Run thousands of jobs, kill a worker half-way, and prove that no job was lost."""
    chosen = desk.settings.demo
    number = secrets.randbelow(1_000_000) if chosen.seed is None else chosen.seed
    with _ended_by_sigterm(), ExitStack() as stack:
        if chosen.dir is None:
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-demo-")))
        else:
            directory = _new_directory(Path(chosen.dir))
        desk.out.line(f"{chosen.jobs} jobs, {chosen.workers} workers, seed {number}")
        say, progress = stack.enter_context(_telling(desk, chosen.jobs))
        show = Show(
            directory=directory,
            jobs=chosen.jobs,
            workers=chosen.workers,
            seed=number,
            inject_loss=inject_loss,
            say=say,
            progress=progress,
        )
        on_spark = await perform_with_tables(show) if spark else None
        report = await perform(show) if on_spark is None else on_spark.report
    _tell(desk, report)
    if on_spark is not None:
        tell_tables(desk, on_spark)
    if not report.is_proven or (on_spark is not None and not on_spark.is_proven):
        raise typer.Exit(1)


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """SIGTERM stops the workers and removes the files, as Ctrl-C does."""
    loop, work = asyncio.get_running_loop(), asyncio.current_task()
    told = False

    def end() -> None:
        nonlocal told
        if not told and work is not None:
            told = True
            work.cancel()

    loop.add_signal_handler(signal.SIGTERM, end)
    try:
        yield
    except asyncio.CancelledError:
        if not told:
            raise
        raise typer.Exit(128 + signal.SIGTERM) from None
    finally:
        loop.remove_signal_handler(signal.SIGTERM)


def _new_directory(parent: Path) -> Path:
    """A directory of its own for each run, so that the demo can be run again and again."""
    try:
        create_private_folder(parent)
        return Path(tempfile.mkdtemp(prefix=time.strftime("%Y%m%d-%H%M%S-"), dir=parent)).absolute()
    except OSError as error:
        raise ConfigError(f"--dir: {parent}: {error.strerror or error}") from None


@contextmanager
def _telling(desk: Desk, jobs: int) -> Iterator[tuple[Callable[[str], None], Progress]]:
    """How to tell what goes on: a bar on a terminal, lines elsewhere, nothing with --json."""
    if desk.out.json or not sys.stdout.isatty():
        yield desk.out.line, _Lines(desk, jobs)
        return
    from rich import progress as bars

    columns = (
        bars.BarColumn(),
        bars.MofNCompleteColumn(),
        bars.TextColumn("{task.description}"),
        bars.TimeElapsedColumn(),
    )
    with bars.Progress(*columns, console=desk.out.console, transient=True) as bar:
        task = bar.add_task("", total=jobs)

        def progress(counts: dict[State, int]) -> None:
            bar.update(task, completed=_ended(counts), description=_said(counts))

        yield desk.out.line, progress


class _Lines:
    """One line per second."""

    def __init__(self, desk: Desk, jobs: int) -> None:
        self._desk, self._jobs = desk, jobs
        self._next = time.monotonic()

    def __call__(self, counts: dict[State, int]) -> None:
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + SECONDS_PER_LINE
            self._desk.out.line(f"{_ended(counts)} of {self._jobs} ended: {_said(counts)}")


def _ended(counts: dict[State, int]) -> int:
    return sum(count for state, count in counts.items() if state not in LIVE)


def _said(counts: dict[State, int]) -> str:
    return ", ".join(f"{count} {state}" for state, count in counts.items() if count) or "nothing yet"


def _tell(desk: Desk, report: Report) -> None:
    verdict = report.verdict
    live = sum(verdict.live.values())
    desk.out.document(
        without_none(
            proven=report.is_proven,
            seed=report.seed,
            seconds=round(report.seconds, 1),
            enqueued=report.produced,
            completed=verdict.completed,
            failed=verdict.failed,
            dead=verdict.dead,
            live=live,
            executions=report.executions,
            retried=verdict.retried,
            orphaned=report.orphaned,
            recovered=verdict.recovered,
            lost=verdict.lost,
            events=verdict.events,
            injected_loss=report.injected,
            breaches=[str(breach) for breach in verdict.breaches],
        )
    )
    desk.out.line()
    desk.out.table(
        ["what", "count", "who says so"],
        [
            ("enqueued", report.produced, "the producer's own file"),
            ("completed", verdict.completed, "event log"),
            ("failed for good", verdict.failed, "event log"),
            ("dead after all attempts", verdict.dead, "event log"),
            ("still live", live, "event log and store"),
            ("executions", report.executions, "the handlers' own file"),
            ("retried after an error", verdict.retried, "event log"),
            ("left behind by the killed worker", report.orphaned, "store"),
            ("recovered after their lease ran out", verdict.recovered, "event log"),
            ("lost", verdict.lost, "all of them compared"),
        ],
        right=frozenset({"count"}),
        drop=["who says so"],
    )
    desk.out.line()
    for breach in verdict.breaches[:SHOWN]:
        desk.out.line(f"broken: {breach}")
    if len(verdict.breaches) > SHOWN:
        desk.out.line(f"… and {len(verdict.breaches) - SHOWN} more")
    sums = f"{verdict.completed} completed + {verdict.failed} failed + {verdict.dead} dead = {report.ended}"
    if report.is_proven:
        desk.out.line(
            f"proven: {report.produced} enqueued = {sums}; lost 0, "
            f"every promise kept over {verdict.events} events ({report.seconds:.1f} s, seed {report.seed})"
        )
    else:
        desk.out.line(
            f"NOT proven: {report.produced} enqueued, {sums}; lost {verdict.lost}, "
            f"{len(verdict.breaches)} broken promises (seed {report.seed})"
        )
