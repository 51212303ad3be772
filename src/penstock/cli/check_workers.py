"""What `doctor` says of the workers of a queue: whether somebody serves it while jobs wait."""

from typing import Final

from penstock.cli.checks import Check
from penstock.core.errors import StoreFormatError
from penstock.core.moves import Move
from penstock.core.states import State
from penstock.explain.words import span
from penstock.stores.protocol import Store
from penstock.stores.values import QueueInfo, WorkerEntry

RECENT_EVENTS: Final = 200
"""Events among which a claim shows that somebody serves the queue."""
RECENT_MS: Final = 60_000


async def examine_workers(
    store: Store, info: QueueInfo, counts: dict[State, int], workers: list[WorkerEntry]
) -> Check:
    """Jobs that wait in a queue which is not paused, and that no worker is there for."""
    ref, waiting = info.queue, counts[State.PENDING]
    serving = [worker for worker in workers if ref.name in worker.queues]
    check = Check("workers", f"{len(serving)} registered, {waiting} jobs wait", ref.name)
    if serving or not waiting or counts[State.ACTIVE]:
        return check
    now = await store.now()
    if info.pause is not None and (info.pause.until is None or info.pause.until > now):
        check.seen += "; the queue is paused"
        return check
    if await _was_claimed(store, info, now):
        # Whoever claims over HTTP without an app is not registered.
        check.seen += "; jobs were claimed within the last minute"
        return check
    oldest = await store.oldest(ref)
    since = "" if oldest is None else f", the oldest for {span(now - oldest)}"
    check.findings.append(f"{waiting} jobs wait{since}, and no live worker serves the queue")
    return check


async def _was_claimed(store: Store, info: QueueInfo, now: int) -> bool:
    first, newest = await store.event_range(info.queue)
    try:
        events = await store.events(info.queue, max(first - 1, newest - RECENT_EVENTS), RECENT_EVENTS)
    except StoreFormatError:
        # The check of the history says so.
        return False
    return any(event.move is Move.CLAIM and event.at > now - RECENT_MS for event in events)
