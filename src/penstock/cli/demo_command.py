"""`penstock demo`: kill a worker, and prove that no job was lost."""

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

from penstock.cli.command_context import CommandContext
from penstock.cli.options import setting
from penstock.cli.output import without_none
from penstock.cli.spark_demo import print_tables, run_demo_with_tables
from penstock.core.errors import ConfigError
from penstock.core.states import LIVE, State
from penstock.demo.audit import Report
from penstock.demo.run import DemoOptions, run_demo
from penstock.stores.private_files import create_private_folder

MAX_BREACHES: Final = 10
SECONDS_PER_LINE: Final = 1.0
Progress = Callable[[dict[State, int]], None]


async def demo(
    context: CommandContext,
    jobs: Annotated[str | None, setting("demo.jobs", "Number of jobs", metavar="N")] = None,
    workers: Annotated[str | None, setting("demo.workers", "Number of worker processes", metavar="N")] = None,
    seed: Annotated[
        str | None,
        setting(
            "demo.seed",
            "Seed of the plan of the jobs, such as 7; the same seed gives the same plan",
            default="a random seed",
            metavar="N",
        ),
    ] = None,
    dir: Annotated[  # noqa: A002 (the word for it)
        str | None,
        setting(
            "demo.dir",
            "Directory to keep the files of the run in, such as ./demo",
            default="a temporary directory",
            metavar="DIR",
        ),
    ] = None,
    inject_loss: Annotated[
        bool,
        typer.Option(
            "--inject-loss", help="Delete one job behind the store's back, to see that the loss is detected"
        ),
    ] = False,
    spark: Annotated[
        bool, typer.Option("--spark", help="Also stream the events into tables and audit them on Spark")
    ] = False,
) -> None:
    """Run thousands of jobs, kill a worker half-way, and prove that no job was lost."""
    chosen = context.settings.demo
    number = secrets.randbelow(1_000_000) if chosen.seed is None else chosen.seed
    with _cleanup_on_sigterm(), ExitStack() as stack:
        if chosen.dir is None:
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-demo-")))
        else:
            directory = _new_directory(Path(chosen.dir))
        context.out.line(f"{chosen.jobs} jobs, {chosen.workers} workers, seed {number}")
        print_line, progress = stack.enter_context(_progress_output(context, chosen.jobs))
        options = DemoOptions(
            directory=directory,
            jobs=chosen.jobs,
            workers=chosen.workers,
            seed=number,
            inject_loss=inject_loss,
            print_line=print_line,
            progress=progress,
        )
        on_spark = await run_demo_with_tables(options) if spark else None
        report = await run_demo(options) if on_spark is None else on_spark.report
    _print_report(context, report)
    if on_spark is not None:
        print_tables(context, on_spark)
    if not report.is_proven or (on_spark is not None and not on_spark.is_proven):
        raise typer.Exit(1)


@contextmanager
def _cleanup_on_sigterm() -> Iterator[None]:
    """SIGTERM stops the workers and removes the files, as Ctrl-C does."""
    loop, work = asyncio.get_running_loop(), asyncio.current_task()
    cancelled = False

    def end() -> None:
        nonlocal cancelled
        if not cancelled and work is not None:
            cancelled = True
            work.cancel()

    loop.add_signal_handler(signal.SIGTERM, end)
    try:
        yield
    except asyncio.CancelledError:
        if not cancelled:
            raise
        raise typer.Exit(128 + signal.SIGTERM) from None
    finally:
        loop.remove_signal_handler(signal.SIGTERM)


def _new_directory(parent: Path) -> Path:
    """A new directory below `parent` for this run."""
    try:
        create_private_folder(parent)
        return Path(tempfile.mkdtemp(prefix=time.strftime("%Y%m%d-%H%M%S-"), dir=parent)).absolute()
    except OSError as error:
        raise ConfigError(f"--dir: {parent}: {error.strerror or error}") from None


@contextmanager
def _progress_output(context: CommandContext, jobs: int) -> Iterator[tuple[Callable[[str], None], Progress]]:
    """Functions that print lines and progress: a bar on a terminal, lines elsewhere, nothing with --json."""
    if context.out.json or not sys.stdout.isatty():
        yield context.out.line, _ProgressLines(context, jobs)
        return
    from rich import progress as bars

    columns = (
        bars.BarColumn(),
        bars.MofNCompleteColumn(),
        bars.TextColumn("{task.description}"),
        bars.TimeElapsedColumn(),
    )
    with bars.Progress(*columns, console=context.out.console, transient=True) as bar:
        task = bar.add_task("", total=jobs)

        def progress(counts: dict[State, int]) -> None:
            bar.update(task, completed=_ended(counts), description=_counts_text(counts))

        yield context.out.line, progress


class _ProgressLines:
    """Progress as text: at most one line per second."""

    def __init__(self, context: CommandContext, jobs: int) -> None:
        self._context, self._jobs = context, jobs
        self._next = time.monotonic()

    def __call__(self, counts: dict[State, int]) -> None:
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + SECONDS_PER_LINE
            self._context.out.line(f"{_ended(counts)} of {self._jobs} ended: {_counts_text(counts)}")


def _ended(counts: dict[State, int]) -> int:
    return sum(count for state, count in counts.items() if state not in LIVE)


def _counts_text(counts: dict[State, int]) -> str:
    return ", ".join(f"{count} {state}" for state, count in counts.items() if count) or "nothing yet"


def _print_report(context: CommandContext, report: Report) -> None:
    verdict = report.verdict
    live = sum(verdict.live.values())
    context.out.document(
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
    context.out.line()
    context.out.table(
        ["what", "count", "source"],
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
            ("lost", verdict.lost, "all sources compared"),
        ],
        right=frozenset({"count"}),
        drop=["source"],
    )
    context.out.line()
    for breach in verdict.breaches[:MAX_BREACHES]:
        context.out.line(f"broken promise: {breach}")
    if len(verdict.breaches) > MAX_BREACHES:
        context.out.line(f"… and {len(verdict.breaches) - MAX_BREACHES} more")
    sums = f"{verdict.completed} completed + {verdict.failed} failed + {verdict.dead} dead = {report.ended}"
    if report.is_proven:
        context.out.line(
            f"proven: {report.produced} enqueued = {sums}; lost 0, "
            f"every promise kept over {verdict.events} events ({report.seconds:.1f} s, seed {report.seed})"
        )
    else:
        context.out.line(
            f"NOT proven: {report.produced} enqueued, {sums}; lost {verdict.lost}, "
            f"{len(verdict.breaches)} broken promises (seed {report.seed})"
        )
