"""Reads what only the store knows: depths, ages, lags of readers, live workers. A scrape asks for it.

No scrape waits for the store for longer than `wait`: it then shows the values of the sample before, marked as
stale, while the sample goes on in the background.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol

from penstock.core.errors import PenstockError
from penstock.core.job import QueueRef
from penstock.core.repeated_failures import RepeatedFailures
from penstock.core.states import State
from penstock.metrics.families import OTHER
from penstock.metrics.labels import MOST_QUEUES
from penstock.metrics.recorder import Metrics
from penstock.stores.protocol import HasClock, HasEvents, HasReaders, HasReads, HasWorkers
from penstock.stores.values import Reader

_LOGGER: Final = logging.getLogger("penstock.metrics")
WAIT: Final = 2.0
"""Seconds that a scrape waits for a new sample."""
LIMIT: Final = 30.0
"""Seconds after which a sample is given up."""
FRESH: Final = 5.0
"""Seconds for which a sample is shown again without asking the store."""
MOST_READERS: Final = 20
"""Readers of a queue with a lag of their own: those that are furthest behind."""
LAG_EVERY: Final = 1.0
"""Seconds between two measurements of the event loop."""

Queues = Callable[[], Awaitable[Sequence[QueueRef]]]


class SampledStore(HasReads, HasReaders, HasEvents, HasWorkers, HasClock, Protocol):
    """What a sample is read from."""


class QueueSample:
    """What the store said of one queue."""

    __slots__ = ("counts", "lags", "oldest_seconds", "queue", "workers")

    def __init__(
        self,
        queue: QueueRef,
        counts: dict[State, int],
        oldest_seconds: float,
        lags: dict[str, int],
        workers: int,
    ) -> None:
        self.queue = queue
        self.counts = counts
        self.oldest_seconds = oldest_seconds
        self.lags = lags
        self.workers = workers


class Sampler:
    """Samples the queues of a process, one sample at a time, and measures its event loop while it runs."""

    def __init__(
        self,
        store: SampledStore,
        queues: Queues,
        metrics: Metrics,
        *,
        most_queues: int = MOST_QUEUES,
        wait: float = WAIT,
        fresh: float = FRESH,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._queues = queues
        self._metrics = metrics
        self._most_queues = most_queues
        self._wait = wait
        self._fresh = fresh
        self._clock = clock
        self._running: asyncio.Task[None] | None = None
        self._made = clock()
        self._completed: dict[QueueRef, int] = {}
        self._reasons = RepeatedFailures()
        self._lag = 0.0
        self.taken_at: float | None = None
        """When the last complete sample was taken, by this process's clock."""
        self.samples: list[QueueSample] = []
        self.throughput: dict[QueueRef, float] = {}
        self.failures = 0
        self.left_out = 0
        self.lag_seconds = 0.0
        self.is_stale = True
        """True while the last attempt at a sample failed, or has not ended in time."""

    @property
    def age(self) -> float:
        """Seconds since the last sample; since this was made, where there was none."""
        return self._clock() - (self._made if self.taken_at is None else self.taken_at)

    async def run(self) -> None:
        """Measure the event loop until cancelled."""
        loop = asyncio.get_running_loop()
        try:
            while True:
                planned = loop.time() + LAG_EVERY
                await asyncio.sleep(LAG_EVERY)
                self._lag = max(self._lag, loop.time() - planned)
        finally:
            if self._running is not None:
                self._running.cancel()

    async def refresh(self) -> None:
        """Take a sample unless there is a new one; returns in time, whatever the store does. Never raises."""
        if self.taken_at is not None and not self.is_stale and self.age < self._fresh:
            return
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(self._sample())
        await asyncio.wait([self._running], timeout=self._wait)
        if not self._running.done():
            self.is_stale = True

    async def _sample(self) -> None:
        try:
            async with asyncio.timeout(LIMIT):
                await self._read()
        except (PenstockError, TimeoutError) as error:
            self.failures += 1
            self.is_stale = True
            if self._reasons.is_new(str(error)):
                _LOGGER.warning("sampling the store failed, the values before are shown: %s", error)
        except Exception:
            self.failures += 1
            self.is_stale = True
            _LOGGER.exception("sampling the store failed, the values before are shown")
        else:
            self._reasons.over()

    async def _read(self) -> None:
        queues = list(await self._queues())
        store = self._store
        workers = {
            tenant: await store.workers.list_workers(tenant) for tenant in {each.tenant for each in queues}
        }
        samples = []
        for queue in queues[: self._most_queues]:
            counts = await store.reads.counts(queue)
            oldest = await store.reads.oldest(queue) if counts[State.PENDING] else None
            now = await store.clock.now()
            readers = await store.readers.list_readers(queue)
            newest = (await store.events.event_range(queue))[1] if readers else 0
            serving = [
                each for each in workers[queue.tenant] if queue.name in each.queues or each.more_queues
            ]
            samples.append(
                QueueSample(
                    queue,
                    counts,
                    0.0 if oldest is None else max(0, now - oldest) / 1000,
                    _lags(readers, newest),
                    len(serving),
                )
            )
        self._take(samples, len(queues) - len(samples))

    def _take(self, samples: list[QueueSample], left_out: int) -> None:
        now = self._clock()
        completed = {stats.queue: stats.completed for stats in self._metrics.queues}
        seconds = now - (self._made if self.taken_at is None else self.taken_at)
        if seconds > 0:
            self.throughput = {
                queue: (count - self._completed.get(queue, 0)) / seconds for queue, count in completed.items()
            }
        self._completed = completed
        self.samples, self.left_out, self.taken_at = samples, left_out, now
        self.lag_seconds, self._lag = self._lag, 0.0
        self.is_stale = False


def _lags(readers: Sequence[Reader], newest: int) -> dict[str, int]:
    """How far readers are behind; those beyond the bound share the largest lag among them."""
    behind = sorted(((max(0, newest - each.seq), each.name) for each in readers), reverse=True)
    lags = {name: lag for lag, name in behind[:MOST_READERS]}
    for lag, _ in behind[MOST_READERS : MOST_READERS + 1]:
        lags[OTHER] = max(lag, lags.get(OTHER, 0))
    return lags
