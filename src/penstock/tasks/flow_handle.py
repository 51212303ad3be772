"""A flow as its producer sees it once it is in the store."""

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import msgspec

from penstock.core.flows import Child, JobRef, in_order
from penstock.core.job import Job
from penstock.core.states import State
from penstock.tasks.handle import JobHandle, JobReader

if TYPE_CHECKING:
    from penstock.tasks.flow import FlowNode

R = TypeVar("R")


class FlowReader(JobReader, Protocol):
    """Where a flow's handle asks about its jobs."""

    async def jobs(self, refs: Sequence[JobRef], /) -> list[Job | None]:
        """The records, in their order."""
        ...

    async def children(self, ref: JobRef, /) -> list[Child]:
        """What a job waited or waits for, in the order it named them."""
        ...

    async def cancel_all(self, refs: Sequence[JobRef], /) -> int:
        """Take back, or ask to stop, whatever of these still lives, in this order; how many did."""
        ...

    async def carry(self, queue: str, /) -> None:
        """Bring to other queues what this one has for them."""
        ...


class FlowCounts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How far many jobs are. `gone` were deleted, or pruned before anyone looked."""

    waiting: int = 0
    active: int = 0
    completed: int = 0
    failed: int = 0
    dead: int = 0
    cancelled: int = 0
    gone: int = 0

    @property
    def total(self) -> int:
        """All of them."""
        return self.live + self.ended

    @property
    def live(self) -> int:
        """Those that have not ended."""
        return self.waiting + self.active

    @property
    def ended(self) -> int:
        """Those that have, in whatever way."""
        return self.completed + self.failed + self.dead + self.cancelled + self.gone


class FlowTree(msgspec.Struct, frozen=True):
    """A job with those it waits for. A job that several wait for stands below each of them.

    `task` and `state` are None when its record is not there.
    """

    ref: JobRef
    task: str | None
    state: State | None
    children: list["FlowTree"]


class FlowHandle:
    """A flow in the store: `handle[node]` is the handle of a node's job."""

    def __init__(
        self,
        reader: FlowReader,
        home: str,
        jobs: Mapping["FlowNode[Any]", JobHandle[Any]],
        ordered: Sequence[JobRef],
    ) -> None:
        self._reader = reader
        self._home = home
        self._jobs = dict(jobs)
        self._ordered = list(ordered)
        """Each after all that wait for it."""

    def __getitem__(self, node: "FlowNode[R]") -> JobHandle[R]:
        return self._jobs[node]

    @property
    def jobs(self) -> list[JobHandle[Any]]:
        """All jobs, in the order their nodes were added."""
        return list(self._jobs.values())

    @property
    def sinks(self) -> list[JobHandle[Any]]:
        """The jobs that nothing waits for."""
        needed = {need for node in self._jobs for need in node.needs}
        return [job for node, job in self._jobs.items() if node not in needed]

    async def result(self, timeout: float | None = None) -> Any:
        """The result of the last job, once there is one: a list of them where several are last.

        JobEndedError when one ended without; ResultTimeoutError after `timeout` seconds.
        """
        clock = asyncio.get_running_loop().time
        end = None if timeout is None else clock() + timeout
        results = [await job.result(None if end is None else max(0.0, end - clock())) for job in self.sinks]
        return results[0] if len(results) == 1 else results

    async def status(self) -> FlowCounts:
        """How many of its jobs are where; those that they spawned are not counted."""
        records = dict(zip(self._ordered, await self._reader.jobs(self._ordered), strict=True))
        parents: dict[JobRef, list[JobRef]] = {}
        for node, handle in self._jobs.items():
            for need in node.needs:
                parents.setdefault(_ref(self._jobs[need]), []).append(_ref(handle))
        states: dict[JobRef, State | None] = {}
        known: dict[JobRef, dict[JobRef, Child]] = {}
        for ref, job in records.items():
            if job is not None:
                states[ref] = job.state
                continue
            # Pruned, deleted, or on its way still: those that wait for it know.
            waiting = parents.get(ref, [])
            for parent in waiting:
                if parent not in known:
                    known[parent] = {each.ref: each for each in await self._reader.children(parent)}
            told = [known[parent][ref] for parent in waiting if ref in known[parent]]
            ending = next((each for each in told if each.is_done or each.state is not None), None)
            # Nobody is told any more once all of them have ended: then it is gone.
            is_coming = any((state := states[parent]) is not None and state.is_live for parent in waiting)
            states[ref] = ending.state if ending is not None else State.PENDING if is_coming else None
        return counted(states.values())

    async def cancel(self) -> int:
        """Cancel all that has not ended, what its jobs spawned included; how many jobs that were."""
        await self._reader.carry(self._home)
        # Whoever waits first: a job that ends cannot fail those above it any more.
        cancelled = await self._reader.cancel_all(self._ordered)
        known = set(self._ordered)
        spawned = [child.ref for ref in self._waiting() for child in await self._reader.children(ref)]
        more = [ref for ref in dict.fromkeys(spawned) if ref not in known]
        return cancelled + (await self._reader.cancel_all(more) if more else 0)

    async def tree(self) -> list[FlowTree]:
        """The graph as it stands, from the last jobs down to the first, with what was spawned on the way."""
        needs = {ref: [child.ref for child in await self._reader.children(ref)] for ref in self._waiting()}
        refs = list(dict.fromkeys([*self._ordered, *(ref for below in needs.values() for ref in below)]))
        records = dict(zip(refs, await self._reader.jobs(refs), strict=True))
        named = {str(ref): ref for ref in refs}
        trees: dict[JobRef, FlowTree] = {}
        for name in in_order({str(ref): [str(each) for each in needs.get(ref, ())] for ref in refs}):
            ref = named[name]
            job = records[ref]
            children = [trees[each] for each in needs.get(ref, ())]
            task, state = (None, None) if job is None else (job.task, job.state)
            trees[ref] = FlowTree(ref, task, state, children)
        return [trees[_ref(handle)] for handle in self.sinks]

    def _waiting(self) -> list[JobRef]:
        """The jobs that were made to wait for others: only these have children."""
        return [_ref(handle) for node, handle in self._jobs.items() if node.needs]

    def __repr__(self) -> str:
        return f"<FlowHandle of {len(self._jobs)} jobs from {self._home!r}>"


def counted(states: Iterable[State | None]) -> FlowCounts:
    """Jobs by state; None is gone."""
    found: Counter[str] = Counter()
    for state in states:
        if state is None:
            found["gone"] += 1
        elif state.is_live and state is not State.ACTIVE:
            found["waiting"] += 1
        else:
            found[state.value] += 1
    return FlowCounts(**found)


def _ref(handle: JobHandle[Any]) -> JobRef:
    return JobRef(handle.queue, handle.id)
