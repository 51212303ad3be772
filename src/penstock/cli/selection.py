"""The options that say which jobs a command is about, and how a command acts on all of them."""

from collections.abc import AsyncIterator, Callable, Sequence
from datetime import datetime
from typing import Annotated, Final

import msgspec
import typer

from penstock.cli.bulk import progress
from penstock.cli.desk import Desk
from penstock.cli.records import job_document
from penstock.client.job_filter import JobFilter, matching_pages
from penstock.client.where import Where
from penstock.core.errors import OptionError
from penstock.core.job import Job, QueueRef
from penstock.core.outcomes import Applied
from penstock.core.states import State
from penstock.settings import seconds
from penstock.stores.protocol import Store

Queue = Annotated[str | None, typer.Option("--queue", help="Only this queue")]
States = Annotated[str | None, typer.Option("--state", help="Only these states, such as dead,failed")]
Task = Annotated[str | None, typer.Option("--task", help="Only this task")]
Key = Annotated[str | None, typer.Option("--key", help="Only jobs with this key")]
Since = Annotated[
    str | None,
    typer.Option(
        "--since",
        metavar="TIME",
        help="Only jobs enqueued since then, or ended where only ended states are asked for: "
        "a time, or how long ago, such as 2h",
    ),
]
Reason = Annotated[str | None, typer.Option("--reason", help="Only this reason, such as MAX_ATTEMPTS")]
Condition = Annotated[
    str | None,
    typer.Option("--where", metavar="SQL", help="An SQL condition, such as \"error like 'Timeout%'\""),
]
AtMost = Annotated[int | None, typer.Option("--limit", min=1, help="How many at most", show_default="all")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say which and how many")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask")]
YesOrAll = Annotated[
    bool, typer.Option("--yes", "-y", "--all", help="Do not ask, also if all jobs are meant")
]

SAMPLE: Final = 10


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """Which jobs the options of a command mean. `ago_ms` is counted back from the store's time."""

    filter: JobFilter
    queue: str | None = None
    ago_ms: int | None = None
    limit: int | None = None

    @property
    def is_narrow(self) -> bool:
        """True when not every job in these states is meant."""
        return self.filter.is_narrow or self.ago_ms is not None or self.limit is not None

    def at(self, now: int) -> JobFilter:
        """The filter, by the store's time."""
        if self.ago_ms is None:
            return self.filter
        return msgspec.structs.replace(self.filter, since=now - self.ago_ms)


class Action(msgspec.Struct, frozen=True):
    """What is done to many jobs: a question about them, and what is said of them afterwards."""

    question: str
    done: str
    refused: str


def selection(
    *,
    states: frozenset[State],
    queue: str | None = None,
    task: str | None = None,
    key: str | None = None,
    since: str | None = None,
    reason: str | None = None,
    where: str | None = None,
    limit: int | None = None,
) -> Selection:
    """The options, checked; OptionError names the one that is wrong."""
    at, ago_ms = _since(since)
    condition = None if where is None else Where(where, field="--where")
    wanted = JobFilter(states=states, task=task, key=key, since=at, reason=reason, where=condition)
    return Selection(filter=wanted, queue=queue, ago_ms=ago_ms, limit=limit)


async def selected(
    desk: Desk, store: Store, wanted: Selection, *, oldest_first: bool = False, results: bool = False
) -> AsyncIterator[tuple[QueueRef, list[Job]]]:
    """The jobs that are meant, queue by queue and page by page."""
    left, now = wanted.limit, await store.now()
    for info in await desk.queues(store, wanted.queue):
        pages = matching_pages(
            store, info.queue, wanted.at(now), now, limit=left, oldest_first=oldest_first, results=results
        )
        async for jobs in pages:
            yield info.queue, jobs
            left = None if left is None else left - len(jobs)
        if left == 0:
            return


async def act_on_all(
    desk: Desk,
    wanted: Selection,
    action: Action,
    show: Callable[[Desk, Sequence[Job]], None],
    *,
    asks: bool,
    dry_run: bool,
) -> None:
    """Do it to the jobs that are meant, from the oldest on, so that they keep their order."""
    done = refused = 0
    sample: list[Job] = []
    async with desk.store() as store:
        if asks and not dry_run and (many := await _count(desk, store, wanted)):
            desk.out.confirm(action.question.format(many=many))
        moves = {"redriven": store.redrive, "cancelled": store.cancel, "deleted": store.delete}
        total = 0
        for info in await desk.queues(store, wanted.queue):
            counts = await store.counts(info.queue)
            total += sum(counts[state] for state in wanted.filter.states or State)
        with progress("looking" if dry_run else action.done, min(total, wanted.limit or total)) as advance:
            async for ref, jobs in selected(desk, store, wanted, oldest_first=True):
                sample += jobs[: SAMPLE - len(sample)]
                advance(len(jobs))
                if dry_run:
                    done += len(jobs)
                    continue
                outcomes = await moves[action.done](ref, [job.id for job in jobs])
                applied = sum(isinstance(outcome, Applied) for outcome in outcomes)
                done, refused = done + applied, refused + len(jobs) - applied
    if not dry_run:
        desk.out.document({action.done: done, "refused": refused})
        moved = f"; {refused} {action.refused}" if refused else ""
        desk.out.line(f"{done} jobs {action.done}{moved}")
        return
    desk.out.document(
        {"dry_run": True, "would_be": action.done, "count": done, "sample": list(map(job_document, sample))}
    )
    meant = "dead jobs" if wanted.filter.states == {State.DEAD} else "jobs"
    desk.out.line(f"{done} {meant} would be {action.done}" + (", such as" if sample else ""))
    if sample:
        show(desk, sample)


async def _count(desk: Desk, store: Store, wanted: Selection) -> int:
    many = 0
    async for _, jobs in selected(desk, store, wanted, oldest_first=True):
        many += len(jobs)
    return many


def _since(text: str | None) -> tuple[int | None, int | None]:
    """A time in Unix milliseconds, or how many of them ago. Without an offset it is the user's local time."""
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
