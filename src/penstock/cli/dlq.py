"""`penstock dlq`: the dead jobs, one by one, by kind, and all at once."""

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from typing import Annotated, Any

import msgspec
import typer

from penstock.cli.address import find_job
from penstock.cli.bulk import each_page, progress
from penstock.cli.desk import Desk, command, setting
from penstock.cli.output import local, span, utc, without_none
from penstock.cli.records import event_line, job_document, job_fields
from penstock.cli.where import Where
from penstock.core.errors import WrongStateError
from penstock.core.job import Job, QueueRef
from penstock.core.outcomes import Applied
from penstock.core.states import State
from penstock.explain.events import events_of
from penstock.stores.protocol import Store
from penstock.stores.values import Query

group = typer.Typer(help="The dead jobs: list, run again, delete.", no_args_is_help=True)

SAMPLE = 10

Queue = Annotated[str | None, typer.Option("--queue", help="Only this queue")]
Task = Annotated[str | None, typer.Option("--task", help="Only this task")]
Reason = Annotated[str | None, typer.Option("--reason", help="Only this reason, such as MAX_ATTEMPTS")]
Condition = Annotated[
    str | None,
    typer.Option("--where", metavar="SQL", help="An SQL condition, such as \"error like 'Timeout%'\""),
]
AtMost = Annotated[int | None, typer.Option("--limit", min=1, help="How many at most", show_default="all")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say which and how many")]


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """Which dead jobs are meant."""

    queue: str | None = None
    task: str | None = None
    reason: str | None = None
    where: Where | None = None
    limit: int | None = None

    def of(self, jobs: Sequence[Job], now: int) -> list[Job]:
        """Those of a page that are meant."""
        found = [job for job in jobs if self.reason is None or job.reason == self.reason]
        return found if self.where is None else self.where.matching(found, now)


@command(group, "list", prefix="list")
async def list_dead(
    desk: Desk,
    queue: Queue = None,
    task: Task = None,
    reason: Reason = None,
    where: Condition = None,
    limit: Annotated[str | None, setting("list.limit", "How many at most", metavar="N")] = None,
    by_kind: Annotated[bool, typer.Option("--group", help="One row per kind of error")] = False,
) -> None:
    """List dead jobs, the newest first."""
    many = desk.settings.list.limit
    wanted = _filter(queue, task, reason, where, None if by_kind else many)
    async with desk.store() as store:
        pages = [jobs async for _, jobs in _dead(desk, store, wanted)]
    found = [job for jobs in pages for job in jobs]
    if by_kind:
        _show_kinds(desk, found, many)
        return
    desk.out.document({"jobs": [job_document(job) for job in found]})
    _show(desk, found)


@command(group, "show")
async def show(
    desk: Desk,
    id: Annotated[str, typer.Argument(metavar="ID", help="An id, bare or as queue/id")],  # noqa: A002
    payload: Annotated[bool, typer.Option("--payload", help="Show the payload too")] = False,
) -> None:
    """Show one dead job with its traceback and events."""
    async with desk.store() as store:
        job = await find_job(desk, store, id)
        if job.state is not State.DEAD:
            raise WrongStateError(f"{job.queue}/{job.id} is {job.state}, not dead: see penstock jobs show")
        events, whole = await events_of(store, job.ref, job)
        now = await store.now()
    desk.out.document(job_document(job, payload=payload) | {"events": events, "events_complete": whole})
    desk.out.fields(job_fields(job, now, payload=payload))
    for event in events:
        desk.out.line(f"  {event_line(event, queue=False)}")


@command(group, "redrive")
async def redrive(
    desk: Desk,
    queue: Queue = None,
    task: Task = None,
    reason: Reason = None,
    where: Condition = None,
    limit: AtMost = None,
    dry_run: DryRun = False,
) -> None:
    """Give dead jobs a new life: all their attempts, their own policy."""
    await _all(desk, _filter(queue, task, reason, where, limit), "redriven", dry_run=dry_run)


@command(group, "purge")
async def purge(
    desk: Desk,
    queue: Queue = None,
    task: Task = None,
    reason: Reason = None,
    where: Condition = None,
    limit: AtMost = None,
    dry_run: DryRun = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask")] = False,
) -> None:
    """Delete dead jobs for good."""
    wanted = _filter(queue, task, reason, where, limit)
    if not yes and not dry_run:
        async with desk.store() as store:
            pages = [jobs async for _, jobs in _dead(desk, store, wanted)]
        many = sum(len(jobs) for jobs in pages)
        if many:
            desk.out.confirm(f"Delete {many} dead jobs for good?")
    await _all(desk, wanted, "deleted", dry_run=dry_run)


async def _all(desk: Desk, wanted: Filter, done_word: str, *, dry_run: bool) -> None:
    done = refused = 0
    sample: list[Job] = []
    async with desk.store() as store:
        act = store.redrive if done_word == "redriven" else store.delete
        total = 0
        for info in await desk.queues(store, wanted.queue):
            total += (await store.counts(info.queue))[State.DEAD]
        with progress("looking" if dry_run else done_word, min(total, wanted.limit or total)) as advance:
            async for ref, jobs in _dead(desk, store, wanted):
                sample += jobs[: SAMPLE - len(sample)]
                advance(len(jobs))
                if dry_run:
                    done += len(jobs)
                    continue
                outcomes = await act(ref, [job.id for job in jobs])
                applied = sum(isinstance(outcome, Applied) for outcome in outcomes)
                done, refused = done + applied, refused + len(jobs) - applied
    if dry_run:
        desk.out.document(
            {"dry_run": True, "would_be": done_word, "count": done, "sample": list(map(job_document, sample))}
        )
        desk.out.line(f"{done} dead jobs would be {done_word}" + (", such as" if sample else ""))
        if sample:
            _show(desk, sample)
        return
    desk.out.document({done_word: done, "refused": refused})
    moved = f"; {refused} were no longer dead" if refused else ""
    desk.out.line(f"{done} jobs {done_word}{moved}")


async def _dead(desk: Desk, store: Store, wanted: Filter) -> AsyncIterator[tuple[QueueRef, list[Job]]]:
    left = wanted.limit
    now = await store.now()
    for info in await desk.queues(store, wanted.queue):
        has_condition = wanted.where is not None
        query = Query(
            states=frozenset({State.DEAD}),
            task=wanted.task,
            limit=50 if has_condition else 500,
            payloads=has_condition,
            results=False,
        )
        async for page in each_page(store, info.queue, query):
            jobs = wanted.of(page, now)[:left]
            if jobs:
                yield info.queue, jobs
            if left is not None:
                left -= len(jobs)
                if left <= 0:
                    return


def _filter(
    queue: str | None, task: str | None, reason: str | None, where: str | None, limit: int | None
) -> Filter:
    condition = None if where is None else Where(where)
    return Filter(queue=queue, task=task, reason=reason, where=condition, limit=limit)


def _show(desk: Desk, jobs: Sequence[Job]) -> None:
    desk.out.table(
        ["id", "queue", "task", "ended", "attempts", "reason", "fingerprint", "error"],
        (
            (
                job.id,
                job.queue,
                job.task,
                local(job.ended_at),
                job.attempts,
                job.reason,
                job.fingerprint,
                (job.error or "").partition("\n")[0],
            )
            for job in jobs
        ),
        right=frozenset({"attempts"}),
        drop=["fingerprint", "attempts", "reason", "queue", "ended"],
    )


def _show_kinds(desk: Desk, jobs: Sequence[Job], limit: int) -> None:
    kinds: dict[tuple[str, str, str | None], list[Job]] = {}
    for job in jobs:
        kinds.setdefault((job.queue, job.task, job.fingerprint), []).append(job)
    ordered = sorted(kinds.items(), key=lambda kind: -len(kind[1]))[:limit]
    rows: list[dict[str, Any]] = []
    for (queue, task, fingerprint), members in ordered:
        ends = [job.ended_at or 0 for job in members]
        rows.append(
            without_none(
                count=len(members),
                queue=queue,
                task=task,
                fingerprint=fingerprint,
                reasons=dict(Counter(job.reason or "" for job in members)),
                first_at=utc(min(ends)),
                last_at=utc(max(ends)),
                spread=span(max(ends) - min(ends)),
                example=members[0].id,
                error=(members[0].error or "").partition("\n")[0],
            )
        )
    desk.out.document({"groups": rows})
    desk.out.table(
        ["count", "queue", "task", "fingerprint", "reasons", "last", "error"],
        (
            (
                row["count"],
                row["queue"],
                row["task"],
                row.get("fingerprint"),
                ", ".join(row["reasons"]),
                row["last_at"],
                row["error"],
            )
            for row in rows
        ),
        right=frozenset({"count"}),
        drop=["last", "reasons", "fingerprint"],
    )
