"""The options that select jobs, and how a command changes all the jobs that they select."""

from collections.abc import AsyncIterator, Callable, Sequence
from datetime import datetime
from typing import Annotated, Any, Final

import msgspec
import typer

from penstock.cli.command_context import CommandContext
from penstock.cli.jobs.job_output import job_document
from penstock.cli.jobs.job_pages import progress
from penstock.client.job_filter import JobFilter, matching_pages
from penstock.client.where import Where
from penstock.core.errors import OptionError
from penstock.core.job import Job, QueueRef
from penstock.core.outcomes import Applied
from penstock.core.states import State
from penstock.settings import seconds
from penstock.stores.protocol import Store

Queue = Annotated[
    str | None,
    typer.Option(
        "--queue", metavar="NAME", help="Only jobs of this queue, such as mail", show_default="all queues"
    ),
]


def states_option(default: str) -> Any:
    """The option that selects jobs by state; `default` says which states are selected without it."""
    return typer.Option(
        "--state",
        metavar="STATES",
        help="Only jobs in these states, such as dead,failed",
        show_default=default,
    )


Task = Annotated[
    str | None,
    typer.Option(
        "--task", metavar="TASK", help="Only jobs of this task, such as send", show_default="all tasks"
    ),
]
Key = Annotated[
    str | None,
    typer.Option(
        "--key",
        metavar="KEY",
        help="Only jobs with this concurrency key, such as customer-7",
        show_default="jobs with any key or none",
    ),
]
Since = Annotated[
    str | None,
    typer.Option(
        "--since",
        metavar="TIME",
        help="Only jobs enqueued since this time, such as 2026-01-31T12:00, or this long ago, such as 2h; "
        "if only ended states are selected, the time of the end counts",
        show_default="jobs of any age",
    ),
]
Reason = Annotated[
    str | None,
    typer.Option(
        "--reason",
        metavar="REASON",
        help="Only jobs with this reason, such as MAX_ATTEMPTS",
        show_default="all reasons",
    ),
]
Condition = Annotated[
    str | None,
    typer.Option(
        "--where",
        metavar="SQL",
        help="Only jobs that match this SQL condition, such as \"error like 'Timeout%'\"",
        show_default="no condition",
    ),
]
MaxJobs = Annotated[
    int | None,
    typer.Option(
        "--limit", metavar="N", min=1, help="Maximum number of jobs, such as 100", show_default="no maximum"
    ),
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Change nothing; print how many jobs are selected, and some of them")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation")]

SAMPLE_SIZE: Final = 10
"""Jobs that a dry run prints."""


class JobSelection(msgspec.Struct, frozen=True, kw_only=True):
    """The jobs that the options of a command select; `ago_ms` counts back from the store's time."""

    filter: JobFilter
    queue: str | None = None
    ago_ms: int | None = None
    limit: int | None = None

    @property
    def is_narrow(self) -> bool:
        """True if an option other than queue and states restricts the selection."""
        return self.filter.is_narrow or self.ago_ms is not None or self.limit is not None

    def at(self, now: int) -> JobFilter:
        """The filter at this time of the store."""
        if self.ago_ms is None:
            return self.filter
        return msgspec.structs.replace(self.filter, since=now - self.ago_ms)


class BulkAction(msgspec.Struct, frozen=True):
    """A change of many jobs: the question before it, and the words of the report after it."""

    question: str
    done: str
    refused: str


def select_jobs(
    *,
    states: frozenset[State],
    queue: str | None = None,
    task: str | None = None,
    key: str | None = None,
    since: str | None = None,
    reason: str | None = None,
    where: str | None = None,
    limit: int | None = None,
) -> JobSelection:
    """The selection that the options make; OptionError names an option that is wrong."""
    at, ago_ms = _since(since)
    condition = None if where is None else Where(where, field="--where")
    wanted = JobFilter(states=states, task=task, key=key, since=at, reason=reason, where=condition)
    return JobSelection(filter=wanted, queue=queue, ago_ms=ago_ms, limit=limit)


async def selected_jobs(
    context: CommandContext,
    store: Store,
    wanted: JobSelection,
    *,
    oldest_first: bool = False,
    results: bool = False,
) -> AsyncIterator[tuple[QueueRef, list[Job]]]:
    """The selected jobs, queue by queue and page by page."""
    left, now = wanted.limit, await store.clock.now()
    for info in await context.queues(store, wanted.queue):
        pages = matching_pages(
            store.reads,
            info.queue,
            wanted.at(now),
            now,
            limit=left,
            oldest_first=oldest_first,
            results=results,
        )
        async for jobs in pages:
            yield info.queue, jobs
            left = None if left is None else left - len(jobs)
        if left == 0:
            return


async def change_selected_jobs(
    context: CommandContext,
    wanted: JobSelection,
    action: BulkAction,
    print_sample: Callable[[CommandContext, Sequence[Job], int], None],
    *,
    asks: bool,
    dry_run: bool,
) -> None:
    """Change the selected jobs, the oldest first, so that they keep their order.

    `asks` is whether the user has to confirm.
    """
    done = asked = refused = 0
    sample: list[Job] = []
    async with context.store() as store:
        if asks and not dry_run and (many := await _count(context, store, wanted)):
            context.out.confirm(action.question.format(many=many))
        moves = {
            "redriven": store.moves.redrive,
            "cancelled": store.moves.cancel,
            "deleted": store.moves.delete,
        }
        total, now = 0, await store.clock.now()
        for info in await context.queues(store, wanted.queue):
            counts = await store.reads.counts(info.queue)
            total += sum(counts[state] for state in wanted.filter.states or State)
        with progress("selecting" if dry_run else action.done, min(total, wanted.limit or total)) as advance:
            async for ref, jobs in selected_jobs(context, store, wanted, oldest_first=True):
                sample += jobs[: SAMPLE_SIZE - len(sample)]
                advance(len(jobs))
                if dry_run:
                    done += len(jobs)
                    continue
                outcomes = await moves[action.done](ref, [job.id for job in jobs])
                applied = [outcome for outcome in outcomes if isinstance(outcome, Applied)]
                running = sum(outcome.cancel_requested for outcome in applied)
                done, asked = done + len(applied) - running, asked + running
                refused += len(jobs) - len(applied)
    if not dry_run:
        stops = {"asked_to_stop": asked} if action.done == "cancelled" else {}
        context.out.document({action.done: done, **stops, "refused": refused})
        stopping = f", {asked} asked to stop" if asked else ""
        moved = f"; {refused} {action.refused}" if refused else ""
        context.out.line(f"{done} jobs {action.done}{stopping}{moved}")
        return
    context.out.document(
        {"dry_run": True, "would_be": action.done, "count": done, "sample": list(map(job_document, sample))}
    )
    noun = "dead jobs" if wanted.filter.states == {State.DEAD} else "jobs"
    context.out.line(f"{done} {noun} would be {action.done}" + (", such as" if sample else ""))
    if sample:
        print_sample(context, sample, now)


async def _count(context: CommandContext, store: Store, wanted: JobSelection) -> int:
    many = 0
    async for _, jobs in selected_jobs(context, store, wanted, oldest_first=True):
        many += len(jobs)
    return many


def _since(text: str | None) -> tuple[int | None, int | None]:
    """A time in Unix milliseconds, or how many milliseconds ago; a time without an offset is local time."""
    if text is None:
        return None, None
    try:
        at = datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError):
        pass
    else:
        return int(at.timestamp() * 1000), None
    try:
        return None, int(seconds("--since", text) * 1000)
    except OptionError:
        wanted = "a time such as 2026-01-31T12:00 or 2026-01-31T12:00:00Z, or how long ago, such as 2h"
        raise OptionError("--since", text, wanted) from None
