"""The events of one job."""

from typing import Final

from penstock.core.events import Event
from penstock.core.job import Job, QueueRef
from penstock.core.moves import Move
from penstock.stores.protocol import Store

WINDOW: Final = 1_000
SCAN_LIMIT: Final = 200_000
"""Events looked through for one job before giving up."""


async def events_of(
    store: Store, ref: QueueRef, job: Job, *, newest_only: bool = False
) -> tuple[list[Event], bool]:
    """The job's events that are still in the log, oldest first, and whether they are all there.

    Read from the newest backwards, because the log has no index by job and most questions are about the end.
    """
    oldest, newest = await store.event_range(ref)
    found: list[Event] = []
    end = newest
    while end >= oldest and newest - end < SCAN_LIMIT:
        start = max(oldest - 1, end - WINDOW)
        window = [event for event in await store.events(ref, start, WINDOW) if event.seq <= end]
        mine = [event for event in window if event.job == job.id and (event.version or 0) <= job.version]
        found = mine + found
        if found and (newest_only or found[0].move is Move.ENQUEUE):
            break
        end = start
    return found, bool(found) and found[0].move is Move.ENQUEUE
