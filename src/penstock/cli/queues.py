"""`penstock queues`: what waits where; pause, resume, purge, delete."""

from typing import Annotated, Any

import typer

from penstock.cli.bulk import PAGE, delete_all
from penstock.cli.desk import Desk, command
from penstock.cli.output import local, span, utc, without_none
from penstock.cli.records import states_of
from penstock.client.upkeep import ENDED, not_empty
from penstock.core.errors import OptionError
from penstock.core.states import State
from penstock.settings import seconds
from penstock.stores.protocol import Store
from penstock.stores.values import Pause, Query, QueueInfo

group = typer.Typer(help="See what waits where; pause, resume, purge, delete.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="QUEUE", help="The queue's name", show_default=False)]


@command(group, "list")
async def list_queues(desk: Desk) -> None:
    """List the queues with their jobs by state, and how long the oldest of the pending ones waits."""
    async with desk.store() as store:
        infos = await store.queues(desk.tenant)
        counts = [await store.counts(info.queue) for info in infos]
        oldest = [await store.oldest(info.queue) for info in infos]
        now = await store.now()
    found = list(zip(infos, counts, oldest, strict=True))
    desk.out.document({"queues": [_document(info, count, since, now) for info, count, since in found]})
    desk.out.table(
        ["queue", *State, "oldest", "mode", "paused"],
        (
            (
                info.queue.name,
                *(count[state] for state in State),
                _waited(since, now),
                info.mode,
                "yes" if _paused(info.pause, now) else "",
            )
            for info, count, since in found
        ),
        right=frozenset({*State, "oldest"}),
        drop=["cancelled", "mode", "blocked", "completed", "failed"],
    )


@command(group, "show")
async def show(desk: Desk, queue: Name) -> None:
    """Show one queue: counts, leases, pause, events kept."""
    async with desk.store() as store:
        info = await desk.queue(store, queue)
        counts, since = await store.counts(info.queue), await store.oldest(info.queue)
        leases = await store.leases(info.queue)
        first, last = await store.event_range(info.queue)
        now = await store.now()
    workers = sorted({lease.worker for lease in leases})
    desk.out.document(
        _document(info, counts, since, now)
        | {
            "leases": len(leases),
            "workers": workers,
            "expired_leases": sum(lease.deadline <= now for lease in leases),
            "events": {"first": first, "last": last},
        }
    )
    desk.out.fields(
        [
            ("queue", str(info.queue)),
            ("number", info.number),
            ("mode", info.mode),
            ("paused", _paused(info.pause, now) or "no"),
            *((state, counts[state]) for state in State),
            ("oldest", _waited(since, now) or None),
            ("leases", len(leases)),
            ("run out", sum(lease.deadline <= now for lease in leases)),
            ("workers", ", ".join(workers) or "none holds a lease"),
            ("events", f"{first} to {last}" if last >= first else "none kept"),
        ]
    )


@command(group, "pause")
async def pause(
    desk: Desk,
    queue: Name,
    reason: Annotated[str | None, typer.Option(help="Shown to whoever asks why nothing runs")] = None,
    by: Annotated[str | None, typer.Option(help="Who does this")] = None,
    for_: Annotated[
        str | None, typer.Option("--for", metavar="TIME", help="Resume after, such as 10m")
    ] = None,
) -> None:
    """Stop claims from a queue; what runs goes on."""
    span_ms = None if for_ is None else round(seconds("--for", for_) * 1000)
    if span_ms == 0:
        raise OptionError("--for", for_, "more than nothing")
    async with desk.store() as store:
        info = await desk.queue(store, queue)
        await store.pause(info.queue, Pause(at=0, reason=reason, by=by), span_ms)
        await _tell(desk, store, queue)


@command(group, "resume")
async def resume(desk: Desk, queue: Name) -> None:
    """Allow claims again."""
    async with desk.store() as store:
        info = await desk.queue(store, queue)
        await store.pause(info.queue, None)
        await _tell(desk, store, queue)


@command(group, "purge")
async def purge(
    desk: Desk,
    queue: Name,
    state: Annotated[str, typer.Option(help="Which states to delete")] = "pending,delayed,blocked",
    task: Annotated[str | None, typer.Option(help="Only this task")] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask")] = False,
) -> None:
    """Delete jobs that are not running."""
    states = states_of(state)
    if not states or State.ACTIVE in states:
        raise OptionError("--state", state, "some states, and not active: what runs cannot be deleted")
    async with desk.store() as store:
        info = await desk.queue(store, queue)
        counts = await store.counts(info.queue)
        many = sum(counts[each] for each in states)
        which = f"{', '.join(sorted(states))} jobs" + (f" of task {task}" if task else "")
        if many and not yes:
            desk.out.confirm(f"Delete up to {many} {which} of queue {queue!r} for good?")
        query = Query(states=states, task=task, limit=PAGE, payloads=False, results=False)
        deleted, kept = await delete_all(store, info.queue, query, many)
    desk.out.document({"queue": queue, "deleted": deleted, "kept": kept})
    moved = f"; {kept} had moved on and were kept" if kept else ""
    desk.out.line(f"deleted {deleted} {which} of queue {queue!r}{moved}")


@command(group, "delete")
async def delete(
    desk: Desk,
    queue: Name,
    purge: Annotated[
        bool, typer.Option("--purge", help="Delete its completed, failed, cancelled and dead jobs first")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask")] = False,
) -> None:
    """Delete a queue that has no jobs, schedules or relay entries, with its limits, keys and events."""
    async with desk.store() as store:
        info = await desk.queue(store, queue)
        counts = await store.counts(info.queue)
        many = sum(counts[each] for each in ENDED) if purge else 0
        if not yes:
            jobs = f" and {many} ended jobs" if many else ""
            desk.out.confirm(f"Delete queue {queue!r}{jobs} for good?")
        deleted = 0
        if many:
            query = Query(states=ENDED, limit=PAGE, payloads=False, results=False)
            deleted, _ = await delete_all(store, info.queue, query, many)
        left = await store.delete_queue(info.queue)
        if left is not None and not left.is_empty:
            raise not_empty(info.queue, left)
    desk.out.document({"queue": queue, "deleted_jobs": deleted})
    desk.out.line(f"deleted queue {queue!r}" + (f" and {deleted} ended jobs" if many else ""))


async def _tell(desk: Desk, store: Store, queue: str) -> None:
    info, now = await desk.queue(store, queue), await store.now()
    desk.out.document(without_none(queue=queue, pause=_pause_document(info.pause, now)) | {"at": utc(now)})
    desk.out.line(f"queue {queue!r} is " + (_paused(info.pause, now) or "open"))


def _document(info: QueueInfo, counts: dict[State, int], since: int | None, now: int) -> dict[str, Any]:
    return without_none(
        queue=info.queue.name,
        tenant=info.queue.tenant,
        number=info.number,
        mode=info.mode,
        counts=counts,
        oldest_at=utc(since),
        pause=_pause_document(info.pause, now),
    )


def _waited(since: int | None, now: int) -> str:
    """How long the oldest of the pending jobs has waited."""
    return "" if since is None else span(now - since)


def _pause_document(pause: Pause | None, now: int) -> dict[str, Any] | None:
    if pause is None or (pause.until is not None and pause.until <= now):
        return None
    return without_none(since=utc(pause.at), until=utc(pause.until), reason=pause.reason, by=pause.by)


def _paused(pause: Pause | None, now: int) -> str:
    if pause is None or (pause.until is not None and pause.until <= now):
        return ""
    until = "" if pause.until is None else f" for another {span(pause.until - now)}"
    by = f" by {pause.by}" if pause.by else ""
    reason = f" ({pause.reason})" if pause.reason else ""
    return f"paused since {local(pause.at)}{by}{until}{reason}"
