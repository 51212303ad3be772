"""Graphs of calls: which job waits for which others."""

from collections.abc import Iterable, Sequence
from typing import Any, Final, Generic, Literal, TypeVar

from penstock.core.errors import FlowError, OptionError
from penstock.core.flows import ChildPolicy
from penstock.core.names import check_name
from penstock.tasks.call import Call, FlowSender
from penstock.tasks.flow_handle import FlowHandle

R = TypeVar("R")
Policy = ChildPolicy | Literal["fail", "ignore", "wait"]
MOST_JOBS: Final = 10_000


class FlowNode(Generic[R]):
    """A call in a flow, and the nodes that have to end before its job may run."""

    __slots__ = ("call", "flow", "needs", "number", "policy")

    def __init__(self, flow: "Flow", number: int, call: Call[R], policy: ChildPolicy) -> None:
        self.flow = flow
        self.number = number
        self.call = call
        self.policy = policy
        self.needs: dict[FlowNode[Any], None] = {}

    def after(self, *nodes: "FlowNode[Any]") -> "FlowNode[R]":
        """Wait for these too; FlowError when one is of another flow. A cycle is found when it is sent."""
        for node in nodes:
            if node.flow is not self.flow:
                raise FlowError(f"{node!r} is not part of this flow")
            self.needs[node] = None
        return self

    def __repr__(self) -> str:
        return f"<FlowNode {self.number} {self.call.task} in {self.call.queue}>"


class Flow:
    """Jobs that wait for each other, over any queues of one app; taken in as a whole, or not at all.

    >>> from penstock import Penstock
    >>> app = Penstock("memory://")
    >>> @app.task
    ... def part(number: int) -> int:
    ...     return number
    >>> @app.queue("reports").task
    ... def report() -> None: ...
    >>> flow = app.flow()
    >>> parts = [flow.add(part.call(number)) for number in range(3)]
    >>> flow.add(report.call(), after=parts)
    <FlowNode 3 report in reports>
    """

    def __init__(self, sender: FlowSender | None = None, name: str | None = None) -> None:
        self._sender = sender
        self.name = name if name is None else check_name("name", name)
        """The id of the job that comes after all others, where it was chosen."""
        self.nodes: list[FlowNode[Any]] = []

    def add(
        self, call: Call[R], *, after: Iterable[FlowNode[Any]] = (), child_policy: Policy = "fail"
    ) -> FlowNode[R]:
        """One more job, that runs after these have ended.

        `child_policy` says what it means for this job when one of them ends without success: it fails too
        (`fail`), it runs all the same (`ignore`), or it waits for that one's redrive (`wait`). Ids are given
        by the flow: idempotency keys, chosen ids, unique, throttle and debounce are OptionErrors here.
        """
        _check_options(call)
        if len(self.nodes) == MOST_JOBS:
            raise FlowError(f"a flow has at most {MOST_JOBS} jobs: enqueue it in parts")
        node = FlowNode(self, len(self.nodes), call, _policy(child_policy))
        node.after(*after)
        self.nodes.append(node)
        return node

    def include(self, other: "Flow", *, after: Iterable[FlowNode[Any]] = ()) -> list[FlowNode[Any]]:
        """All of another flow, its beginnings after these nodes; its last nodes as they are here."""
        after = list(after)
        copies: dict[FlowNode[Any], FlowNode[Any]] = {}
        for node in other.nodes:
            copies[node] = self.add(node.call, child_policy=node.policy)
        for node, copy in copies.items():
            copy.after(*([copies[need] for need in node.needs] if node.needs else after))
        return [copies[node] for node in other.sinks]

    @property
    def sinks(self) -> list[FlowNode[Any]]:
        """The nodes that nothing waits for, in the order they were added."""
        needed = {need for node in self.nodes for need in node.needs}
        return [node for node in self.nodes if node not in needed]

    async def enqueue(self) -> FlowHandle:
        """Enqueue all of it in one operation; FlowError on a cycle. Each call makes jobs of its own."""
        sender = self.check()
        if sender is None:
            raise FlowError("the flow belongs to no app: make it with app.flow()")
        return await sender.send_flow(self)

    def check(self) -> FlowSender | None:
        """Whose it is; FlowError when it is empty, or of several apps."""
        if not self.nodes:
            raise FlowError("the flow is empty")
        sender = self._sender or self.nodes[0].call.sender
        for node in self.nodes:
            if node.call.sender is not sender:
                raise FlowError(f"{node!r} is of another app")
        return sender

    def __repr__(self) -> str:
        return f"<Flow of {len(self.nodes)} jobs>"


Step = Call[Any] | Flow


def chain(*steps: Step) -> Flow:
    """One after the other: `await chain(fetch.call(url), group(…), send.call()).enqueue()`."""
    flow = Flow()
    last: Sequence[FlowNode[Any]] = ()
    for step in steps:
        last = _added(flow, step, last)
    return flow


def group(steps: Iterable[Step], then: Step | None = None) -> Flow:
    """All at once, and `then` after all of them."""
    flow = Flow()
    last = [node for step in steps for node in _added(flow, step, ())]
    if then is not None:
        _added(flow, then, last)
    return flow


def _added(flow: Flow, step: Step, after: Sequence[FlowNode[Any]]) -> list[FlowNode[Any]]:
    return flow.include(step, after=after) if isinstance(step, Flow) else [flow.add(step, after=after)]


def _policy(value: str) -> ChildPolicy:
    try:
        return ChildPolicy(value)
    except ValueError:
        raise OptionError("child_policy", value, f"one of {', '.join(ChildPolicy)}") from None


def _check_options(call: Call[Any]) -> None:
    options = call.options
    # Others wait for this very id: no earlier job can stand for it.
    for name in ("id", "idempotency_key"):
        if getattr(options, name) is not None:
            raise OptionError(name, getattr(options, name), "none in a flow: its jobs get their ids from it")
    if options.kind is not None:
        raise OptionError("unique", str(options.kind.rule), "none in a flow: its jobs are its own")
