"""Checks of what a queue has for other queues: relay entries, and blocked jobs whose children are lost."""

from typing import Final

from penstock.cli.doctor.check import Check
from penstock.cli.jobs.job_pages import each_page
from penstock.cli.output import span
from penstock.core.flows import ChildEnding, JobRef
from penstock.core.job import Job, NewJob, QueueRef
from penstock.core.states import State
from penstock.stores.protocol import Store
from penstock.stores.values import Adoption, Query, Relay

RELAY_GRACE_MS: Final = 60_000
"""A running worker carries a relay entry over within one tick; an entry this old means that none runs."""
MAX_ENTRIES: Final = 10_000
"""Relay entries that are read of one queue."""


async def examine_relays(store: Store, ref: QueueRef) -> Check:
    """Check that relay entries for other queues do not wait for long."""
    relays, now = await store.flows.list_relay_entries(ref, MAX_ENTRIES), await store.clock.now()
    check = Check("relays", f"{len(relays)} relay entries", ref.name)
    if relays:
        since = await _since(store, ref, relays[0])
        if since is not None and now - since > RELAY_GRACE_MS:
            check.findings.append(
                f"{len(relays)} relay entries wait for delivery, the oldest for {span(now - since)}: "
                "no worker runs on this queue"
            )
    return check


async def _since(store: Store, ref: QueueRef, relay: Relay) -> int | None:
    """When the relay entry was written, if a job that it concerns still exists."""
    match relay.what:
        case ChildEnding(child=child):
            (job,) = await store.reads.get(ref, [child.id])
            return None if job is None else job.ended_at
        case NewJob(parents=parents):
            mine = [parent.id for parent in parents if parent.queue == ref.name]
            jobs = [job for job in await store.reads.get(ref, mine) if job is not None]
            return min((job.enqueued_at for job in jobs), default=None)
        case Adoption():
            return None


async def examine_blocked(store: Store, ref: QueueRef) -> Check:
    """Check that every blocked job has a child left that can unblock it."""
    many = 0
    suspects: list[tuple[Job, list[JobRef]]] = []
    async for jobs in each_page(store, ref, Query(states=frozenset({State.BLOCKED}), limit=1_000)):
        many += len(jobs)
        suspects += [(job, lost) for job in jobs if (lost := await _lost_children(store, job))]
    check = Check("blocked jobs", f"{many} blocked", ref.name)
    announced = await _in_relay_entries(store, ref.tenant) if suspects else set()
    for job, lost in suspects:
        # Check the children again, after the relay entries were read: some may have been delivered meanwhile.
        again = set(await _lost_children(store, job)) - announced
        gone = [child for child in lost if child in again]
        if gone:
            which = str(gone[0]) + (f" and {len(gone) - 1} more" if len(gone) > 1 else "")
            check.findings.append(
                f"job {job.id} would wait for ever: no relay entry will report the end of {which}"
            )
    return check


async def _lost_children(store: Store, job: Job) -> list[JobRef]:
    """The children that the job waits for, if each of them is gone, or ended without the job being told."""
    left = [
        child for child in await store.flows.children(job.ref, job.id, results=False) if not child.is_done
    ]
    for child in left:
        if child.state is not None:
            return []
        (record,) = await store.reads.get(QueueRef(job.tenant, child.ref.queue), [child.ref.id])
        if record is not None and record.state.is_live:
            return []
    return [child.ref for child in left]


async def _in_relay_entries(store: Store, tenant: str) -> set[JobRef]:
    """Jobs that relay entries will enqueue, and jobs whose end they will report."""
    found: set[JobRef] = set()
    for info in await store.queues.list_queues(tenant):
        for relay in await store.flows.list_relay_entries(info.queue, MAX_ENTRIES):
            match relay.what:
                case NewJob(id=job):
                    found.add(JobRef(relay.queue, job))
                case ChildEnding(child=child):
                    found.add(child)
                case Adoption(children=children):
                    found.update(children)
    return found
