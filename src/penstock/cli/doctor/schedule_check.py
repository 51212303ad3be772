"""The check of schedules: whether one is overdue, and why."""

from typing import Final

from penstock.cli.doctor.check import Check
from penstock.cli.output import local, span
from penstock.core.job import QueueRef
from penstock.core.states import WAITING
from penstock.stores.protocol import Store

OVERDUE_MS: Final = 10_000
"""Two ticks of a worker with its defaults."""


async def examine_schedules(store: Store, tenant: str, queue: str | None) -> Check:
    """Check that no schedule is overdue."""
    kept = [each for each in await store.schedules.list_schedules(tenant) if queue in (None, each.queue.name)]
    now = await store.clock.now()
    check = Check("schedules", f"{len(kept)} kept")
    check.findings = [
        f"schedule {each.name!r} of queue {each.queue.name!r} was due at {local(each.next_at)}, "
        f"{span(now - each.next_at)} ago: {await _why_overdue(store, each.queue)}"
        for each in kept
        if each.next_at is not None and not each.paused and now - each.next_at > OVERDUE_MS
    ]
    return check


async def _why_overdue(store: Store, ref: QueueRef) -> str:
    info, counts = await store.queues.find_queue(ref), await store.reads.counts(ref)
    longest = None if info is None or info.declaration is None else info.declaration.max_length
    waiting = sum(counts[state] for state in WAITING)
    if longest is not None and waiting >= longest:
        return f"the queue is full ({waiting} wait and max_length is {longest})"
    return "no worker or scheduler runs on this queue"
