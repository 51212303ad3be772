"""How many jobs wait or run in a queue, counted seldom, with those that are on their way into it."""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Final
from weakref import WeakValueDictionary

from penstock.core.job import QueueRef
from penstock.core.states import LIVE
from penstock.service.errors import QuotaError
from penstock.stores.protocol import Reads

COUNTED_SECONDS: Final = 1.0
"""How long a count of a queue is used; what is enqueued here meanwhile is added to it."""
MOST_KNOWN: Final = 10_000
_FULL_AGAIN: Final = 1.0
_COUNTS: Final = 3


class QueueLengths:
    """Holds queues to a length. Jobs that were let in count from then on, wherever they are on their way."""

    def __init__(self, store: Reads, clock: Callable[[], float]) -> None:
        self._store = store
        self._clock = clock
        self._counted: dict[QueueRef, tuple[float, int]] = {}
        self._entering: Counter[QueueRef] = Counter()
        self._locks: WeakValueDictionary[QueueRef, asyncio.Lock] = WeakValueDictionary()

    async def enter(self, queue: QueueRef, jobs: int, most: int, pending: int = 0) -> None:
        """Let so many jobs in, until `entered`; QuotaError when the queue would hold more than `most`.

        `pending` jobs are the queue's already and not in it yet: relay entries of other queues.
        """
        lock = self._locks.get(queue)
        if lock is None:
            lock = self._locks[queue] = asyncio.Lock()
        async with lock:
            until, waiting = self._counted.get(queue, (0.0, 0))
            if self._clock() >= until or waiting + pending + jobs > most:
                # Nobody is refused by an old count: workers may have made room.
                until, waiting = await self._count(queue)
            if waiting + pending + jobs > most:
                found = f"{waiting + pending} jobs that wait or run in queue {queue.name}, and {jobs} more"
                raise QuotaError.of("queue_length", found, f"at most {most}", _FULL_AGAIN)
            self._remember(queue, until, waiting + jobs)
            self._entering[queue] += jobs

    def entered(self, queue: QueueRef, jobs: int, *, is_known: bool = True) -> None:
        """The jobs are in the queue; if that is not known, the queue is counted anew."""
        self._entering[queue] -= jobs
        if self._entering[queue] <= 0:
            del self._entering[queue]
        if not is_known:
            self._counted.pop(queue, None)

    def add(self, queue: QueueRef, jobs: int) -> None:
        """So many jobs are in the queue that were not let in here."""
        if queue in self._counted:
            until, waiting = self._counted[queue]
            self._counted[queue] = until, waiting + jobs

    async def space(self, queue: QueueRef, most: int) -> int:
        """How many jobs more the queue may hold."""
        until, waiting = self._counted.get(queue, (0.0, 0))
        if self._clock() >= until or waiting >= most:
            until, waiting = await self._count(queue)
            self._remember(queue, until, waiting)
        return max(0, most - waiting)

    async def _count(self, queue: QueueRef) -> tuple[float, int]:
        turn = 0
        while True:
            turn += 1
            before = self._entering[queue]
            counts = await self._store.counts(queue)
            # Jobs that came in meanwhile may be counted or not: twice is better than not at all.
            if self._entering[queue] >= before or turn == _COUNTS:
                break
        # What runs may be given back at any time, and is never refused then: its place stays taken.
        waiting = sum(counts[state] for state in LIVE)
        return self._clock() + COUNTED_SECONDS, waiting + max(before, self._entering[queue])

    def _remember(self, queue: QueueRef, until: float, waiting: int) -> None:
        self._counted.pop(queue, None)
        if len(self._counted) >= MOST_KNOWN:
            del self._counted[next(iter(self._counted))]
        self._counted[queue] = until, waiting
