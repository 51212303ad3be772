"""What `doctor` looks at where queues have limits, flows or schedules, or readers of their events."""

from typing import Final

import msgspec

from penstock.cli.bulk import each_page
from penstock.cli.output import local, span
from penstock.core.errors import CursorLostError
from penstock.core.events import Event
from penstock.core.flows import ChildEnding, JobRef
from penstock.core.job import Job, NewJob, QueueRef
from penstock.core.limits import STRIDE, Declaration
from penstock.core.moves import Move
from penstock.core.states import WAITING, State
from penstock.explain.events import WINDOW
from penstock.explain.facts import MOST_KEYS
from penstock.scheduler.pruner import EVENTS_AGE, EVENTS_KEPT
from penstock.stores.private_files import HasFiles, readable_by_others
from penstock.stores.protocol import HasHoldups, HasWalls, Store
from penstock.stores.values import Adoption, Holdup, KeyInfo, Query, QueueInfo, Reader, Relay, StoreInfo

RELAY_GRACE_MS: Final = 60_000
"""What a queue has for another is carried over within a tick of any worker; later than this there is none."""
HOLDUP_GRACE_MS: Final = 60_000
"""A transaction that takes longer is not one of ours, and keeps every reader waiting."""
OVERDUE_MS: Final = 10_000
"""Two ticks of a worker with its defaults."""
RELAYS: Final = 10_000
"""Entries that are looked at."""
QUARANTINED: Final = 1_000
"""Entries of the quarantine that are looked at."""
PASSED_OVER: Final = 3
"""Turns that another key may have more than its share before it counts as a fault."""


class Check(msgspec.Struct, omit_defaults=True):
    """One thing looked at, what was seen, and what was found wrong with it."""

    name: str
    seen: str
    queue: str | None = None
    findings: list[str] = []


async def examine_limits(store: Store, info: QueueInfo, counts: dict[State, int]) -> list[Check]:
    """Declared limits beside what is live; nothing for a queue that was never declared."""
    declared = info.declaration
    if declared is None:
        return []
    active, waiting = counts[State.ACTIVE], sum(counts[state] for state in WAITING)
    check = Check("limits", f"{declared.mode}, version {declared.version}", info.queue.name)
    if declared.max_active is not None and active > declared.max_active:
        what = f"{active} jobs run and max_active is {declared.max_active}"
        check.findings.append(what + _lowered(declared))
    if declared.max_length is not None:
        # More than that is no fault: what was let in comes back by retries, releases and flows.
        check.seen += f", {waiting} of {declared.max_length} wait"
    if not declared.mode.has_keys:
        return [check]
    keys = await store.keys(info.queue, MOST_KEYS)
    check.seen += f", {len(keys)} keys"
    check.findings += [
        f"{key.active} jobs of key {key.key!r} run and its limit is {key.limit}" + _lowered(declared)
        for key in keys
        if key.active > key.limit
    ]
    return [check, await _turns(store, info.queue, keys)]


def _lowered(declared: Declaration) -> str:
    if declared.version > 1:
        return f" (version {declared.version} may have lowered it: then this passes as jobs end)"
    return " (unless the limit was lowered while they ran)"


async def _turns(store: Store, ref: QueueRef, keys: list[KeyInfo]) -> Check:
    """Keys that could be served, while others had turns again and again."""
    now = await store.now()
    ready = [
        key
        for key in keys
        if key.waiting and key.active < key.limit and (key.held_until is None or key.held_until <= now)
    ]
    check = Check("turns of keys", f"{len(ready)} could be served", ref.name)
    oldest, newest = await store.event_range(ref)
    events = await store.events(ref, max(oldest - 1, newest - WINDOW), WINDOW)
    weights = {key.key: key.weight for key in keys}
    for key in ready:
        served = _served_since(events, key.key)
        for other, turns in served.items():
            allowed = 1 + (STRIDE // key.weight - 1) // (STRIDE // weights.get(other, 1))
            if turns >= allowed + PASSED_OVER:
                check.findings.append(
                    f"key {key.key!r} has waiting jobs and a free slot, and was passed over: "
                    f"key {other!r} had {turns} turns since"
                )
                break
    return check


def _served_since(events: list[Event], key: str) -> dict[str, int]:
    """How often other keys were served after the newest event of this one."""
    served: dict[str, int] = {}
    for event in reversed(events):
        if event.key == key or event.jobs is not None:
            break
        if event.move is Move.CLAIM and event.key is not None:
            served[event.key] = served.get(event.key, 0) + 1
    return served


async def examine_quarantine(store: Store, ref: QueueRef) -> Check:
    """What was damaged and set aside: it is a finding until people have seen to it."""
    found = await store.quarantined(ref, limit=QUARANTINED)
    many = f"{len(found)}{' or more' if len(found) == QUARANTINED else ''}"
    check = Check("quarantine", f"{many} set aside", ref.name)
    check.findings = [
        f"{each.what} was set aside at {local(each.at)} (job {each.id}): "
        f"see `penstock quarantine list --queue {ref.name}`"
        for each in found
    ]
    return check


async def examine_relays(store: Store, ref: QueueRef) -> Check:
    """What waits to be carried over to other queues, and since when."""
    relays, now = await store.relays(ref, RELAYS), await store.now()
    check = Check("relays", f"{len(relays)} to carry over", ref.name)
    if relays:
        since = await _since(store, ref, relays[0])
        if since is not None and now - since > RELAY_GRACE_MS:
            check.findings.append(
                f"{len(relays)} wait to be carried over, the oldest for {span(now - since)}: "
                "no worker runs on this queue"
            )
    return check


async def _since(store: Store, ref: QueueRef, relay: Relay) -> int | None:
    """When the entry was written, where a job that is still there tells."""
    match relay.what:
        case ChildEnding(child=child):
            (job,) = await store.get(ref, [child.id])
            return None if job is None else job.ended_at
        case NewJob(parents=parents):
            mine = [parent.id for parent in parents if parent.queue == ref.name]
            jobs = [job for job in await store.get(ref, mine) if job is not None]
            return min((job.enqueued_at for job in jobs), default=None)
        case Adoption():
            return None


async def examine_holdup(store: Store) -> list[Check]:
    """Who holds back the readers of events; nothing where nobody can."""
    if not isinstance(store, HasHoldups):
        return []
    held = await store.holdup()
    check = Check("newest events", "can be read" if held is None else holdup_line(held))
    if held is not None and (held.age_ms or 0) > HOLDUP_GRACE_MS:
        check.findings.append(f"{check.seen}: events since then cannot be read until it ends")
    return [check]


def examine_replication(info: StoreInfo) -> list[Check]:
    """What clients lose that stay with a primary cut off from its replicas; nothing without replicas."""
    found = info.replication
    if found is None or not (found.replicas or found.wait_replicas or found.min_replicas_to_write):
        return []
    check = Check(
        "replication",
        f"{found.replicas} replicas, wait_replicas {found.wait_replicas}, "
        f"min-replicas-to-write {found.min_replicas_to_write}",
    )
    if found.min_replicas_to_write:
        return [check]
    if found.wait_replicas:
        # No accepted job is lost, and what ran may run again anyway: no fault.
        check.seen += (
            "; a primary cut off from its replicas goes on with claims and results that a failover drops"
        )
        return [check]
    check.findings.append(
        "min-replicas-to-write is 0: a primary that is cut off from its replicas goes on accepting jobs, "
        "claims and results, and all of them are lost when a replica takes its place; "
        "set min-replicas-to-write to 1 on the server, and wait_replicas=1 in the url"
    )
    return [check]


async def examine_wall(store: Store, tenant: str) -> list[Check]:
    """Whether the user sees the tenant at all; nothing where everybody does."""
    if not isinstance(store, HasWalls) or not await store.is_shut_out(tenant):
        return []
    return [
        Check(
            "tenant",
            tenant,
            findings=[f"the user of the url was not admitted to the tenant {tenant}, and sees nothing of it"],
        )
    ]


def examine_files(store: Store) -> list[Check]:
    """Whether other users of the machine can read the store; nothing for a store without files here."""
    if not isinstance(store, HasFiles):
        return []
    files = store.files()
    return [Check("files", ", ".join(each.name for each in files), findings=readable_by_others(files))]


def holdup_line(held: Holdup) -> str:
    """Who holds back readers, and for how long."""
    since = "" if held.age_ms is None else f" for {span(held.age_ms)}"
    return f"held back{since} by a transaction of {held.who or 'somebody'}"


async def examine_readers(store: Store, ref: QueueRef) -> Check:
    """Readers of the events: which hold back trimming, and which have lost some."""
    now = await store.now()
    readers = [each for each in await store.readers(ref) if each.kept_until > now]
    first, last = await store.event_range(ref)
    check = Check("readers of events", f"{len(readers)} registered", ref.name)
    for reader in readers:
        if reader.seq + 1 < first:
            lost = f"events {reader.seq + 1} to {first - 1}"
            check.findings.append(f"{lost} were trimmed before reader {reader.name!r} had read them")
        elif await _holds_back(store, ref, reader, last, now):
            check.seen += f"; {reader.name} holds back trimming, {last - reader.seq} events behind"
    return check


async def _holds_back(store: Store, ref: QueueRef, reader: Reader, last: int, now: int) -> bool:
    if reader.seq < last - EVENTS_KEPT:
        return True
    try:
        unread = await store.events(ref, reader.cursor, 1)
    except CursorLostError:
        # Told to the reader itself, at its next read.
        return False
    return bool(unread) and unread[0].at < now - EVENTS_AGE * 1000


async def examine_blocked(store: Store, ref: QueueRef) -> Check:
    """Blocked jobs that nothing will ever unblock."""
    many = 0
    suspects: list[tuple[Job, list[JobRef]]] = []
    async for jobs in each_page(store, ref, Query(states=frozenset({State.BLOCKED}), limit=1_000)):
        many += len(jobs)
        suspects += [(job, lost) for job in jobs if (lost := await _lost_children(store, job))]
    check = Check("blocked jobs", f"{many} blocked", ref.name)
    coming = await _on_their_way(store, ref.tenant) if suspects else set()
    for job, lost in suspects:
        # Looked at again after the relays: what they carried over meanwhile is no longer missing.
        again = set(await _lost_children(store, job)) - coming
        gone = [child for child in lost if child in again]
        if gone:
            which = str(gone[0]) + (f" and {len(gone) - 1} more" if len(gone) > 1 else "")
            check.findings.append(f"job {job.id} would wait for ever: of {which} there is no word to come")
    return check


async def _lost_children(store: Store, job: Job) -> list[JobRef]:
    """Its children that are left, if every one of them is gone or has ended without the parent knowing."""
    left = [child for child in await store.children(job.ref, job.id, results=False) if not child.is_done]
    for child in left:
        if child.state is not None:
            return []
        (record,) = await store.get(QueueRef(job.tenant, child.ref.queue), [child.ref.id])
        if record is not None and record.state.is_live:
            return []
    return [child.ref for child in left]


async def _on_their_way(store: Store, tenant: str) -> set[JobRef]:
    """Jobs that relays bring, and jobs whose endings they tell of."""
    found: set[JobRef] = set()
    for info in await store.queues(tenant):
        for relay in await store.relays(info.queue, RELAYS):
            match relay.what:
                case NewJob(id=job):
                    found.add(JobRef(relay.queue, job))
                case ChildEnding(child=child):
                    found.add(child)
                case Adoption(children=children):
                    found.update(children)
    return found


async def examine_schedules(store: Store, tenant: str, queue: str | None) -> Check:
    """Schedules whose instant has come and gone."""
    kept = [each for each in await store.schedules(tenant) if queue in (None, each.queue.name)]
    now = await store.now()
    check = Check("schedules", f"{len(kept)} kept")
    check.findings = [
        f"schedule {each.name!r} of queue {each.queue.name!r} was due at {local(each.next_at)}, "
        f"{span(now - each.next_at)} ago: {await _why_overdue(store, each.queue)}"
        for each in kept
        if each.next_at is not None and not each.paused and now - each.next_at > OVERDUE_MS
    ]
    return check


async def _why_overdue(store: Store, ref: QueueRef) -> str:
    info, counts = await store.queue(ref), await store.counts(ref)
    longest = None if info is None or info.declaration is None else info.declaration.max_length
    waiting = sum(counts[state] for state in WAITING)
    if longest is not None and waiting >= longest:
        return f"the queue is full ({waiting} wait and max_length is {longest})"
    return "no worker or scheduler runs on this queue"
