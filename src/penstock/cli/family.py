"""A job with its children, down the graph, as the store has them now."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from penstock.cli.output import span, utc, without_none
from penstock.core.flows import Child, JobRef
from penstock.core.job import Job, QueueRef
from penstock.core.states import State
from penstock.stores.protocol import Store


class Member(msgspec.Struct):
    """One job of a flow. `job` is None when its record is gone, or not there yet.

    `child` is what its parent knows of it. `is_repeat` marks a job that stands further up as well: its own
    children are shown there.
    """

    ref: JobRef
    job: Job | None
    child: Child | None = None
    children: list["Member"] = []
    is_repeat: bool = False

    @property
    def state(self) -> str:
        """The state in a word."""
        if self.job is not None:
            return self.job.state
        known = None if self.child is None else self.child.state
        return f"{known}, then removed" if known is not None else "not there"

    def all(self) -> Iterator["Member"]:
        """The job and all below it, each once, parents before children."""
        if not self.is_repeat:
            yield self
            for child in self.children:
                yield from child.all()


async def family_of(store: Store, job: Job) -> Member:
    """The job with all that it waits or waited for. Children are read level by level, many in one call."""
    top = Member(JobRef(job.queue, job.id), job)
    seen = {top.ref}
    level = [top]
    while level:
        below: list[Member] = []
        for parent in level:
            kin = await store.children(QueueRef(job.tenant, parent.ref.queue), parent.ref.id)
            records = await _records(store, job.tenant, [child.ref for child in kin])
            for child in kin:
                member = Member(child.ref, records.get(child.ref), child, [], child.ref in seen)
                parent.children.append(member)
                if not member.is_repeat:
                    seen.add(child.ref)
                    below.append(member)
        level = below
    return top


async def _records(store: Store, tenant: str, refs: Sequence[JobRef]) -> dict[JobRef, Job]:
    found: dict[JobRef, Job] = {}
    for queue in dict.fromkeys(ref.queue for ref in refs):
        ids = [ref.id for ref in refs if ref.queue == queue]
        for start in range(0, len(ids), 1_000):
            jobs = await store.get(QueueRef(tenant, queue), ids[start : start + 1_000])
            found |= {JobRef(queue, job.id): job for job in jobs if job is not None}
    return found


def member_text(member: Member, now: int) -> str:
    """One line of the tree."""
    if member.job is None:
        return f"{member.ref}  {member.state}"
    text = f"{member.ref}  {member.job.task}  {member.state}  {duration(member.job, now)}"
    if member.job.reason is not None:
        text += f"  {member.job.reason}"
    return f"{text}  (see above)" if member.is_repeat else text


def summary(members: Sequence[Member]) -> str:
    """How many are in which state."""
    counts = Counter(member.state for member in members)
    return ", ".join(f"{many} {state}" for state, many in sorted(counts.items()))


def member_document(member: Member, now: int) -> dict[str, Any]:
    """A job and all below it for programs."""
    job = member.job
    document = without_none(
        id=member.ref.id,
        queue=member.ref.queue,
        state=None if job is None else job.state,
        ended_as=None if member.child is None else member.child.state,
        counts=None if member.child is None else member.child.is_done,
        task=None if job is None else job.task,
        reason=None if job is None else job.reason,
        enqueued_at=None if job is None else utc(job.enqueued_at),
        ended_at=None if job is None else utc(job.ended_at),
        duration_ms=None if job is None else _took(job, now),
    )
    if member.is_repeat:
        return document | {"repeated": True}
    return document | {"children": [member_document(child, now) for child in member.children]}


def duration(job: Job, now: int) -> str:
    """How long it ran, runs or waits."""
    took = _took(job, now)
    if job.state is State.ACTIVE:
        return f"running for {span(took)}"
    if job.state.is_live:
        return f"waiting for {span(took)}"
    return f"took {span(took)}"


def _took(job: Job, now: int) -> int:
    # The fence is the store's time in µs at the newest claim. What never ran took as long as it waited.
    since = job.fence // 1000 if job.delivery and job.state not in _WAITS else job.enqueued_at
    return max(0, (now if job.ended_at is None else job.ended_at) - since)


_WAITS = frozenset({State.BLOCKED, State.PENDING, State.DELAYED})
