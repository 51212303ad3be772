"""From a flow to the one operation that takes it in.

A job's ending must never reach its parent's queue before the parent does, or the parent would wait for
ever. So a job enters its queue only after all jobs that wait for it are in theirs:

- One job that nothing waits for, the anchor, is enqueued; all others become relay entries of the anchor's
  queue in the same operation. Either all of the flow is in the store, or nothing is. Also the anchor's
  neighbours in its own queue go by relay: taken in at once they could run, end, or be refused for lack of
  room, while those above them are still entries.
- The entries stand in order, each job after all that wait for it, and are carried over in that order.

By induction over the order, all parents of a job are in their queues when it enters its own. Its ending can
only be written after that, whichever queue's entries it goes to, and needs no order of its own. A parent that
a child's ending does not find was deleted, and the ending may be dropped. Nothing waits for another run: one
that reads an entry has applied those before it itself, or they were applied and removed.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from penstock.client.jobs import new_job
from penstock.core.errors import FlowError
from penstock.core.flows import JobRef, in_order
from penstock.core.job import NewJob
from penstock.stores.values import Spawn
from penstock.tasks.flow import Flow, FlowNode

MOST_BYTES: Final = 16 << 20


class FlowPlan(msgspec.Struct, frozen=True):
    """A flow with its ids: `order` has every node after all that wait for it, the anchor first."""

    order: list[FlowNode[Any]]
    jobs: dict[FlowNode[Any], NewJob]

    @property
    def anchor(self) -> FlowNode[Any]:
        """The node that is enqueued; all others are spawned with it."""
        return self.order[0]

    @property
    def home(self) -> str:
        """The anchor's queue."""
        return self.anchor.call.queue

    @property
    def refs(self) -> list[JobRef]:
        """The jobs in their order."""
        return [JobRef(node.call.queue, self.jobs[node].id) for node in self.order]

    def spawns(self, jobs: Mapping[FlowNode[Any], NewJob]) -> list[Spawn]:
        """All but the anchor, in their order."""
        return [Spawn(node.call.queue, jobs[node]) for node in self.order[1:]]


def plan(flow: Flow, make_id: Callable[[str], str]) -> FlowPlan:
    """The flow's jobs; FlowError when they wait for each other. `make_id` gives an id for a queue."""
    if sum(len(node.call.payload) for node in flow.nodes) > MOST_BYTES:
        raise FlowError(f"a flow has at most {MOST_BYTES >> 20} MiB of arguments: enqueue it in parts")
    order = _parents_first(flow)
    ids = {node: make_id(node.call.queue) for node in flow.nodes}
    if flow.name is not None:
        if len(flow.sinks) != 1:
            raise FlowError(f"the flow {flow.name!r} has a name, so one job has to come after all others")
        ids[order[0]] = flow.name
    refs = {node: JobRef(node.call.queue, each) for node, each in ids.items()}
    parents: dict[FlowNode[Any], list[JobRef]] = {}
    for node in flow.nodes:
        for need in node.needs:
            parents.setdefault(need, []).append(refs[node])
    jobs = {
        node: msgspec.structs.replace(
            new_job(node.call, ids[node]),
            awaits=tuple(refs[need] for need in node.needs),
            parents=tuple(parents.get(node, ())),
            child_policy=node.policy,
        )
        for node in flow.nodes
    }
    return FlowPlan(order, jobs)


def _parents_first(flow: Flow) -> list[FlowNode[Any]]:
    """By distance from the end, then by queue, so that neighbours can be carried over together."""
    names = {str(node.number): node for node in flow.nodes}
    ordered = in_order({name: [str(need.number) for need in node.needs] for name, node in names.items()})
    depth: dict[FlowNode[Any], int] = {}
    for name in reversed(ordered):
        node = names[name]
        here = depth.setdefault(node, 0)
        for need in node.needs:
            depth[need] = max(depth.get(need, 0), here + 1)
    sizes = Counter(node.call.queue for node in flow.nodes)
    # The anchor is a last job of the queue with most jobs.
    return sorted(
        flow.nodes, key=lambda node: (depth[node], -sizes[node.call.queue], node.call.queue, node.number)
    )
