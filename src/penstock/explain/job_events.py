"""Reading the events of one job."""

from typing import Final

from penstock.core.events import Event
from penstock.core.job import Job, QueueRef
from penstock.core.moves import Move
from penstock.stores.protocol import Store

WINDOW: Final = 1_000
SCAN_LIMIT: Final = 200_000
"""Maximum number of events that are searched for those of one job."""


async def read_job_events(
    store: Store, ref: QueueRef, job: Job, *, newest_only: bool = False
) -> tuple[list[Event], bool]:
    """The events of the job that the log still has, oldest first, and whether these are all its events.

    The log is read backwards: it has no index by job, and the newest events matter most.
    """
    oldest, newest = await store.events.event_range(ref)
    found: list[Event] = []
    end = newest
    while end >= oldest and newest - end < SCAN_LIMIT:
        start = max(oldest - 1, end - WINDOW)
        window = [event for event in await store.events.read_events(ref, start, WINDOW) if event.seq <= end]
        mine = [event for event in window if event.job == job.id and (event.version or 0) <= job.version]
        found = mine + found
        if found and (newest_only or found[0].move is Move.ENQUEUE):
            break
        end = start
    return found, bool(found) and found[0].move is Move.ENQUEUE
