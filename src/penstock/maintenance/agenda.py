"""What is to be done for which queue and when. Tenants take turns, however many queues they have."""

import asyncio
import heapq
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from penstock.core.job import QueueRef
from penstock.stores.values import Duty

MANY_RESTS: Final = 1_000
"""So many rests are remembered before those that are over are looked for and forgotten."""


class Visit(NamedTuple):
    """Duties of one queue that are to be done now."""

    queue: QueueRef
    duties: frozenset[Duty]


class Agenda:
    """Hands out one visit after the other: the tenants in turn, no queue twice at once.

    One tenant is visited in `per_tenant` places at most at the same time, so that queues which cannot be
    reached leave places to the other tenants. Times are those of `clock`, in seconds.
    """

    def __init__(self, clock: Callable[[], float], *, per_tenant: int) -> None:
        self._clock = clock
        self._per_tenant = per_tenant
        self._waiting: defaultdict[str, dict[QueueRef, set[Duty]]] = defaultdict(dict)
        self._turns: deque[str] = deque()
        self._visited: set[QueueRef] = set()
        self._visits: Counter[str] = Counter()
        self._later: list[tuple[float, int, QueueRef, Duty]] = []
        self._planned: dict[tuple[QueueRef, Duty], float] = {}
        self._rests: dict[tuple[QueueRef, Duty], float] = {}
        self._many_rests = MANY_RESTS
        self._number = 0
        self._ready = asyncio.Event()
        self._alarm: tuple[float, asyncio.Handle] | None = None
        """When it goes off, and what stops it: not every loop makes a timer of what is due at once."""

    def put(self, queue: QueueRef, duties: Iterable[Duty]) -> None:
        """To be done as soon as the tenant has its turn."""
        waiting = self._waiting[queue.tenant]
        if not waiting:
            self._turns.append(queue.tenant)
        waiting.setdefault(queue, set()).update(duties)
        self._ready.set()

    def plan(self, queue: QueueRef, duty: Duty, at: float) -> None:
        """To be done at this time, or when the duty has rested."""
        at = max(at, self._rests.get((queue, duty), at))
        if at <= self._clock():
            self.put(queue, [duty])
        elif self._planned.get((queue, duty), at + 1) > at:
            self._planned[queue, duty] = at
            self._number += 1
            heapq.heappush(self._later, (at, self._number, queue, duty))
            self._set_alarm()

    def rest(self, queue: QueueRef, duty: Duty, until: float) -> None:
        """Do not plan the duty before this time."""
        if len(self._rests) >= self._many_rests:
            now = self._clock()
            self._rests = {key: at for key, at in self._rests.items() if at > now}
            self._many_rests = max(MANY_RESTS, 2 * len(self._rests))
        self._rests[queue, duty] = until

    async def take(self) -> Visit:
        """The next visit; `done` has to follow."""
        while True:
            visit = self._next()
            if visit is not None:
                return visit
            self._ready.clear()
            await self._ready.wait()

    def done(self, visit: Visit) -> None:
        """The visit is over."""
        self._visited.discard(visit.queue)
        self._visits[visit.queue.tenant] -= 1
        self._ready.set()

    def close(self) -> None:
        """Forget what is planned."""
        if self._alarm is not None:
            self._alarm[1].cancel()

    def _next(self) -> Visit | None:
        for _ in range(len(self._turns)):
            tenant = self._turns.popleft()
            waiting = self._waiting[tenant]
            queue = next((each for each in waiting if each not in self._visited), None)
            if queue is None or self._visits[tenant] >= self._per_tenant:
                self._turns.append(tenant)
                continue
            visit = Visit(queue, frozenset(waiting.pop(queue)))
            if waiting:
                self._turns.append(tenant)
            else:
                del self._waiting[tenant]
            self._visited.add(queue)
            self._visits[tenant] += 1
            return visit
        return None

    def _set_alarm(self) -> None:
        at = self._later[0][0]
        if self._alarm is not None:
            set_for, alarm = self._alarm
            if set_for <= at:
                return
            alarm.cancel()
        self._alarm = at, asyncio.get_running_loop().call_at(at, self._wake)

    def _wake(self) -> None:
        self._alarm = None
        now = self._clock()
        while self._later and self._later[0][0] <= now:
            at, _, queue, duty = heapq.heappop(self._later)
            # One that was moved forward stands in there twice.
            if self._planned.get((queue, duty)) == at:
                del self._planned[queue, duty]
                self.put(queue, [duty])
        if self._later:
            self._set_alarm()
