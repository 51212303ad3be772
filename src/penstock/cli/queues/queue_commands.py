"""`penstock queues`: list, show, pause, resume, purge and delete queues."""

from typing import Annotated, Any

import typer

from penstock.cli.command_context import CommandContext
from penstock.cli.jobs.job_output import states_of
from penstock.cli.jobs.job_pages import PAGE, delete_all
from penstock.cli.output import local, span, utc, without_none
from penstock.cli.registration import command, command_group
from penstock.client.queue_administration import ENDED, not_empty
from penstock.core.errors import OptionError
from penstock.core.states import State
from penstock.settings import seconds
from penstock.stores.protocol import Store
from penstock.stores.values import Pause, Query, QueueInfo

group = command_group("List, limit, pause, resume, purge and delete queues.")

Name = Annotated[
    str, typer.Argument(metavar="QUEUE", help="Name of the queue, such as mail", show_default=False)
]


@command(group, "list")
async def list_queues(context: CommandContext) -> None:
    """List the queues: number of jobs per state, and how long the oldest pending job has waited."""
    async with context.store() as store:
        infos = await store.queues.list_queues(context.tenant)
        counts = [await store.reads.counts(info.queue) for info in infos]
        oldest = [await store.reads.oldest(info.queue) for info in infos]
        now = await store.clock.now()
    found = list(zip(infos, counts, oldest, strict=True))
    context.out.documents(_queue_document(info, count, since, now) for info, count, since in found)
    context.out.table(
        ["queue", *State, "oldest", "mode", "paused"],
        (
            (
                info.queue.name,
                *(count[state] for state in State),
                _oldest_age(since, now),
                info.mode,
                "yes" if _pause_text(info.pause, now) else "",
            )
            for info, count, since in found
        ),
        right=frozenset({*State, "oldest"}),
        drop=["cancelled", "mode", "blocked", "completed", "failed"],
    )


@command(group, "show")
async def show(context: CommandContext, queue: Name) -> None:
    """Show a queue: number of jobs per state, leases, workers, pause, and range of its events."""
    async with context.store() as store:
        info = await context.queue(store, queue)
        counts, since = await store.reads.counts(info.queue), await store.reads.oldest(info.queue)
        leases = await store.reads.leases(info.queue)
        first, last = await store.events.event_range(info.queue)
        now = await store.clock.now()
    workers = sorted({lease.worker for lease in leases})
    context.out.document(
        _queue_document(info, counts, since, now)
        | {
            "leases": len(leases),
            "workers": workers,
            "expired_leases": sum(lease.deadline <= now for lease in leases),
            "events": {"first": first, "last": last},
        }
    )
    context.out.fields(
        [
            ("queue", str(info.queue)),
            ("number", info.number),
            ("mode", info.mode),
            ("paused", _pause_text(info.pause, now) or "no"),
            *((state, counts[state]) for state in State),
            ("oldest", _oldest_age(since, now) or None),
            ("leases", len(leases)),
            ("expired leases", sum(lease.deadline <= now for lease in leases)),
            ("workers", ", ".join(workers) or "none holds a lease"),
            ("events", f"{first} to {last}" if last >= first else "none kept"),
        ]
    )


@command(group, "pause")
async def pause(
    context: CommandContext,
    queue: Name,
    reason: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT", help="Reason for the pause, shown by jobs explain, such as 'provider is down'"
        ),
    ] = None,
    by: Annotated[
        str | None, typer.Option(metavar="NAME", help="Name of the person who pauses the queue, such as ada")
    ] = None,
    for_: Annotated[
        str | None,
        typer.Option(
            "--for",
            metavar="TIME",
            help="Resume after this time, such as 10m",
            show_default="paused until resumed",
        ),
    ] = None,
) -> None:
    """Pause a queue: workers claim no more jobs from it; running jobs go on."""
    pause_ms = None if for_ is None else round(seconds("--for", for_) * 1000)
    if pause_ms == 0:
        raise OptionError("--for", for_, "a time longer than 0")
    async with context.store() as store:
        info = await context.queue(store, queue)
        await store.queues.pause_queue(info.queue, Pause(at=0, reason=reason, by=by), pause_ms)
        await _print_pause(context, store, queue)


@command(group, "resume")
async def resume(context: CommandContext, queue: Name) -> None:
    """Resume a paused queue."""
    async with context.store() as store:
        info = await context.queue(store, queue)
        await store.queues.pause_queue(info.queue, None)
        await _print_pause(context, store, queue)


@command(group, "purge")
async def purge(
    context: CommandContext,
    queue: Name,
    state: Annotated[
        str, typer.Option(metavar="STATES", help="States of the jobs to delete, such as pending,delayed")
    ] = "pending,delayed,blocked",
    task: Annotated[
        str | None,
        typer.Option(metavar="TASK", help="Only jobs of this task, such as send", show_default="all tasks"),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation")] = False,
) -> None:
    """Delete jobs of a queue that are not running."""
    states = states_of(state)
    if not states or State.ACTIVE in states:
        raise OptionError(
            "--state", state, "one or more states other than active: running jobs cannot be deleted"
        )
    async with context.store() as store:
        info = await context.queue(store, queue)
        counts = await store.reads.counts(info.queue)
        many = sum(counts[each] for each in states)
        which = f"{', '.join(sorted(states))} jobs" + (f" of task {task}" if task else "")
        if many and not yes:
            context.out.confirm(f"Delete up to {many} {which} of queue {queue!r} for good?")
        query = Query(states=states, task=task, limit=PAGE, payloads=False, results=False)
        deleted, kept = await delete_all(store, info.queue, query, many)
    context.out.document({"queue": queue, "deleted": deleted, "kept": kept})
    moved = f"; {kept} had moved on and were kept" if kept else ""
    context.out.line(f"deleted {deleted} {which} of queue {queue!r}{moved}")


@command(group, "delete")
async def delete(
    context: CommandContext,
    queue: Name,
    purge: Annotated[
        bool,
        typer.Option(
            "--purge", help="First delete the completed, failed, cancelled and dead jobs of the queue"
        ),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation")] = False,
) -> None:
    """Delete a queue without jobs, schedules and relay entries, and its limits, keys and events."""
    async with context.store() as store:
        info = await context.queue(store, queue)
        counts = await store.reads.counts(info.queue)
        many = sum(counts[each] for each in ENDED) if purge else 0
        if not yes:
            jobs = f" and {many} ended jobs" if many else ""
            context.out.confirm(f"Delete queue {queue!r}{jobs} for good?")
        deleted = 0
        if many:
            query = Query(states=ENDED, limit=PAGE, payloads=False, results=False)
            deleted, _ = await delete_all(store, info.queue, query, many)
        left = await store.queues.delete_queue(info.queue)
        if left is not None and not left.is_empty:
            raise not_empty(info.queue, left)
    context.out.document({"queue": queue, "deleted_jobs": deleted})
    context.out.line(f"deleted queue {queue!r}" + (f" and {deleted} ended jobs" if many else ""))


async def _print_pause(context: CommandContext, store: Store, queue: str) -> None:
    info, now = await context.queue(store, queue), await store.clock.now()
    context.out.document(without_none(queue=queue, pause=_pause_document(info.pause, now)) | {"at": utc(now)})
    context.out.line(f"queue {queue!r} is " + (_pause_text(info.pause, now) or "open"))


def _queue_document(info: QueueInfo, counts: dict[State, int], since: int | None, now: int) -> dict[str, Any]:
    return without_none(
        queue=info.queue.name,
        tenant=info.queue.tenant,
        number=info.number,
        mode=info.mode,
        counts=counts,
        oldest_at=utc(since),
        pause=_pause_document(info.pause, now),
    )


def _oldest_age(since: int | None, now: int) -> str:
    """How long the oldest pending job has waited."""
    return "" if since is None else span(now - since)


def _pause_document(pause: Pause | None, now: int) -> dict[str, Any] | None:
    if pause is None or (pause.until is not None and pause.until <= now):
        return None
    return without_none(since=utc(pause.at), until=utc(pause.until), reason=pause.reason, by=pause.by)


def _pause_text(pause: Pause | None, now: int) -> str:
    if pause is None or (pause.until is not None and pause.until <= now):
        return ""
    until = "" if pause.until is None else f" for another {span(pause.until - now)}"
    by = f" by {pause.by}" if pause.by else ""
    reason = f" ({pause.reason})" if pause.reason else ""
    return f"paused since {local(pause.at)}{by}{until}{reason}"
