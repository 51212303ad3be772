"""What a worker process shows of itself: its queues with their slots, its jobs, its memory and its lag."""

import asyncio
import heapq
import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from penstock.stores.values import RunningJob, WorkerState
from penstock.worker.clock import Clock
from penstock.worker.delivery import Delivery
from penstock.worker.slots import Slots

MOST_JOBS: Final = 20
"""Running jobs that an entry names, the oldest first."""
BUSY_BYTES: Final = 4_000
"""Bytes that the names of queues with taken slots may have in an entry."""
LAG_EVERY: Final = 1.0
"""Seconds between two measurements of the event loop."""


class QueueStatus:
    """One queue of a worker process. Its worker writes it, on the event loop; any thread may read numbers."""

    def __init__(
        self, queue: str, slots: Slots, held: Mapping[str, Delivery], *, lease: float, poll: float
    ) -> None:
        self.queue = queue
        self.slots = slots
        self.held = held
        self.poll = poll
        self.polled_at: float | None = None
        """When the worker last asked the store for jobs, on its own clock."""
        self.is_stopping = False
        self.moved_at: float | None = None
        """When the claim loop last went on, on the clock of the worker."""
        self.is_waiting = False
        """The claim loop rightly asks for no jobs: no slot is free, or the store takes no settlements."""
        self._lease_ms = round(lease * 1000)

    def silence(self, now: float) -> float:
        """For how long the store was not asked for jobs although it should have been."""
        if self.moved_at is None or self.is_stopping or self.is_waiting:
            return 0.0
        return now - self.moved_at

    def running(self) -> list[RunningJob]:
        """The jobs that are executed, the oldest first, up to a number of them."""
        executing = (each for each in self.held.values() if each.is_executing)
        oldest = heapq.nsmallest(MOST_JOBS, executing, key=lambda each: each.job.deadline)
        return [
            RunningJob(
                self.queue,
                each.job.id,
                each.job.task,
                each.job.attempts + 1,
                # The store's clock gave the deadline at the claim.
                each.job.deadline - self._lease_ms,
            )
            for each in oldest
        ]


def state_of(queues: Iterable[QueueStatus], *, is_stopping: bool) -> WorkerState:
    """What the process is doing."""
    statuses = list(queues)
    if is_stopping or any(each.is_stopping for each in statuses):
        return WorkerState.SHUTTING_DOWN
    return WorkerState.BUSY if any(each.slots.taken for each in statuses) else WorkerState.IDLE


def busy_slots(queues: Iterable[QueueStatus]) -> dict[str, int]:
    """The taken slots of the queues that have any, as many as an entry has room for."""
    found, size = dict[str, int](), 0
    for each in queues:
        if each.slots.taken and size + len(each.queue) + 8 <= BUSY_BYTES:
            found[each.queue] = each.slots.taken
            size += len(each.queue) + 8
    return found


def done_by(queues: Iterable[QueueStatus]) -> dict[str, tuple[int, int]]:
    """What the slots of each queue have done, as far as an entry has room for it."""
    found, size = dict[str, tuple[int, int]](), 0
    for each in queues:
        usage = each.slots.usage()
        if (usage.ended or each.slots.taken) and size + len(each.queue) + 24 <= BUSY_BYTES:
            found[each.queue] = usage.ended, round(usage.busy_seconds * 1000)
            size += len(each.queue) + 24
    return found


class LoopLag:
    """Measures for how long the event loop is held up. `beat_at` is when the loop last had a turn for it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._worst = 0.0
        self.beat_at = clock()

    async def measure(self) -> None:
        """Measure until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            self.beat_at = self._clock()
            planned = loop.time() + LAG_EVERY
            await asyncio.sleep(LAG_EVERY)
            self._worst = max(self._worst, loop.time() - planned)

    def take(self) -> float:
        """The longest lag in seconds since the last call."""
        worst, self._worst = self._worst, 0.0
        return worst


def resident_memory() -> int | None:
    """The resident memory of this process in bytes; None where the system does not tell."""
    try:
        return int(Path("/proc/self/statm").read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return _peak_memory()


def _peak_memory() -> int | None:
    """The most that the process has had, where only that is known."""
    try:
        import resource
    except ImportError:
        return None
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return used if sys.platform == "darwin" else used * 1024
