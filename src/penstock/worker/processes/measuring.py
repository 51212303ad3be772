"""Samples for an autoscaler: live counts and the registry of workers, and what follows from two of them."""

from collections.abc import Collection, Mapping, Sequence
from typing import Final, Protocol

import msgspec

from penstock.core.job import QueueRef
from penstock.core.scaling import Load, Sample
from penstock.core.states import State
from penstock.stores.protocol import HasQueues, HasReads, HasWorkers
from penstock.stores.values import WorkerEntry, WorkerState
from penstock.worker.clock import Clock

_SMOOTHING: Final = 0.5
"""How much of a measured rate is that of the last interval."""


class _Backend(HasReads, HasQueues, HasWorkers, Protocol):
    """The parts of a store that this module uses."""


class _Seen(msgspec.Struct):
    at: float
    backlog: int
    taken: int
    done: dict[str, tuple[int, int]]
    arrivals: float | None = None
    service: float | None = None


class Measuring:
    """Reads samples. Keeps the one before, for how fast jobs arrive and how long they take."""

    def __init__(self, store: _Backend, tenant: str, slots: Mapping[str, int], clock: Clock) -> None:
        self._store = store
        self._tenant = tenant
        self._slots = dict(slots)
        self._clock = clock
        self._seen: dict[str, _Seen] = {}

    async def workers(self) -> list[WorkerEntry]:
        """The live workers of the tenant."""
        return await self._store.workers.list_workers(self._tenant)

    async def sample(self, workers: Sequence[WorkerEntry], own: Sequence[WorkerEntry], units: int) -> Sample:
        """What there is now. `own` are the entries of this scaler's units, as far as they are registered."""
        working = [each for each in workers if each.state is not WorkerState.SHUTTING_DOWN]
        loads = [
            await self._load(queue, per_unit, working, own, units) for queue, per_unit in self._slots.items()
        ]
        idle = sum(1 for each in own if not each.taken)
        return Sample(self._clock(), units, idle, tuple(loads))

    async def backlog(self, queue: str) -> int:
        """Jobs that could be claimed now; none of a paused queue."""
        ref = QueueRef(self._tenant, queue)
        info = await self._store.queues.find_queue(ref)
        if info is None or info.pause is not None:
            return 0
        return (await self._store.reads.counts(ref)).get(State.PENDING, 0)

    async def _load(
        self,
        queue: str,
        per_unit: int,
        workers: Sequence[WorkerEntry],
        own: Collection[WorkerEntry],
        units: int,
    ) -> Load:
        backlog = await self.backlog(queue)
        arrivals, service = self._rates(queue, backlog, workers)
        slots = per_unit * units
        # A unit that is not registered yet is about to claim: its slots do not count as idle.
        idle = sum(max(0, per_unit - each.busy.get(queue, 0)) for each in own)
        return Load(
            queue=queue,
            backlog=backlog,
            slots=slots,
            idle=min(slots, idle),
            all_slots=max(slots, sum(each.queues.get(queue, 0) for each in workers)),
            arrivals=arrivals,
            service=service,
        )

    def _rates(
        self, queue: str, backlog: int, workers: Sequence[WorkerEntry]
    ) -> tuple[float | None, float | None]:
        """Arrivals a second and seconds a job, from what workers did that stand in both samples."""
        done = {each.instance or each.name: each.done[queue] for each in workers if queue in each.done}
        taken = sum(each.busy.get(queue, 0) for each in workers)
        now, before = self._clock(), self._seen.get(queue)
        seen = self._seen[queue] = _Seen(now, backlog, taken, done)
        if before is None or now <= before.at:
            return None, None
        both = done.keys() & before.done.keys()
        ended = sum(max(0, done[each][0] - before.done[each][0]) for each in both)
        busy_ms = sum(max(0, done[each][1] - before.done[each][1]) for each in both)
        arrived = max(0, backlog - before.backlog + taken - before.taken + ended)
        seen.arrivals = _smoothed(before.arrivals, arrived / (now - before.at))
        seen.service = _smoothed(before.service, busy_ms / 1000 / ended) if ended else before.service
        return seen.arrivals, seen.service


def _smoothed(before: float | None, now: float) -> float:
    return now if before is None else before + _SMOOTHING * (now - before)
