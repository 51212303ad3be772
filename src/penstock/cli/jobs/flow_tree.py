"""A flow as a tree: a job, its children, and the children of these, as the store has them now."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from penstock.cli.output import span, utc, without_none
from penstock.core.flows import Child, JobRef
from penstock.core.job import Job, QueueRef
from penstock.core.states import State
from penstock.stores.protocol import Store


class FlowTreeNode(msgspec.Struct):
    """One job of a flow. `job` is None if the job was removed, or is not enqueued yet.

    `child` is what its parent knows of the job. `is_repeat` marks a job that the tree contains further up:
    its children are listed there.
    """

    ref: JobRef
    job: Job | None
    child: Child | None = None
    children: list["FlowTreeNode"] = []
    is_repeat: bool = False

    @property
    def state(self) -> str:
        """The state, or why there is none."""
        if self.job is not None:
            return self.job.state
        known = None if self.child is None else self.child.state
        return f"{known}, then removed" if known is not None else "not there"

    def all(self) -> Iterator["FlowTreeNode"]:
        """The job and all jobs below it, each once, parents before children."""
        if not self.is_repeat:
            yield self
            for child in self.children:
                yield from child.all()


async def read_flow(store: Store, job: Job) -> FlowTreeNode:
    """The job with all jobs that it waits or waited for; one call reads many children of a level."""
    top = FlowTreeNode(JobRef(job.queue, job.id), job)
    seen = {top.ref}
    level = [top]
    while level:
        below: list[FlowTreeNode] = []
        for parent in level:
            children = await store.flows.children(QueueRef(job.tenant, parent.ref.queue), parent.ref.id)
            records = await _records(store, job.tenant, [child.ref for child in children])
            for child in children:
                node = FlowTreeNode(child.ref, records.get(child.ref), child, [], child.ref in seen)
                parent.children.append(node)
                if not node.is_repeat:
                    seen.add(child.ref)
                    below.append(node)
        level = below
    return top


async def _records(store: Store, tenant: str, refs: Sequence[JobRef]) -> dict[JobRef, Job]:
    found: dict[JobRef, Job] = {}
    for queue in dict.fromkeys(ref.queue for ref in refs):
        ids = [ref.id for ref in refs if ref.queue == queue]
        for start in range(0, len(ids), 1_000):
            jobs = await store.reads.get(QueueRef(tenant, queue), ids[start : start + 1_000])
            found |= {JobRef(queue, job.id): job for job in jobs if job is not None}
    return found


def flow_node_text(node: FlowTreeNode, now: int) -> str:
    """The line of a job in the printed tree."""
    if node.job is None:
        return f"{node.ref}  {node.state}"
    text = f"{node.ref}  {node.job.task}  {node.state}  {duration(node.job, now)}"
    if node.job.reason is not None:
        text += f"  {node.job.reason}"
    return f"{text}  (see above)" if node.is_repeat else text


def summary(nodes: Sequence[FlowTreeNode]) -> str:
    """How many jobs are in which state."""
    counts = Counter(node.state for node in nodes)
    return ", ".join(f"{many} {state}" for state, many in sorted(counts.items()))


def flow_node_document(node: FlowTreeNode, now: int) -> dict[str, Any]:
    """A job and all jobs below it, as JSON."""
    job = node.job
    document = without_none(
        id=node.ref.id,
        queue=node.ref.queue,
        state=None if job is None else job.state,
        ended_as=None if node.child is None else node.child.state,
        counts=None if node.child is None else node.child.is_done,
        task=None if job is None else job.task,
        reason=None if job is None else job.reason,
        enqueued_at=None if job is None else utc(job.enqueued_at),
        ended_at=None if job is None else utc(job.ended_at),
        duration_ms=None if job is None else _took(job, now),
    )
    if node.is_repeat:
        return document | {"repeated": True}
    return document | {"children": [flow_node_document(child, now) for child in node.children]}


def duration(job: Job, now: int) -> str:
    """How long the job ran, has been running, or has been waiting."""
    took = _took(job, now)
    if job.state is State.ACTIVE:
        return f"running for {span(took)}"
    if job.state.is_live:
        return f"waiting for {span(took)}"
    return f"took {span(took)}"


def _took(job: Job, now: int) -> int:
    # The fence is the store's time in µs at the newest claim. A job that never ran took as long as it waited.
    since = job.fence // 1000 if job.delivery and job.state not in _WAITS else job.enqueued_at
    return max(0, (now if job.ended_at is None else job.ended_at) - since)


_WAITS = frozenset({State.BLOCKED, State.PENDING, State.DELAYED})
