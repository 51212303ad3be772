"""Bells within one process: rung by whoever changed something, from any thread."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from penstock.core.job import QueueRef
from penstock.stores.values import Rings, Topic


class LocalBell:
    """A bell on one event loop, with a pending ring."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._rung = asyncio.Event()

    def ring(self) -> None:
        """Ring, from any thread."""
        with suppress(RuntimeError):
            if asyncio.get_running_loop() is self._loop:
                # Whoever waits goes on in the next turn, without one more to pass the ring on.
                self._rung.set()
                return
        # A closed loop has nobody left who waits.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._rung.set)

    @property
    def is_rung(self) -> bool:
        """True where it rang since the last wait."""
        return self._rung.is_set()

    async def wait(self, timeout: float) -> bool:
        """True as soon as it rings; False after `timeout` seconds."""
        try:
            async with asyncio.timeout(timeout):
                await self._rung.wait()
        except TimeoutError:
            return False
        self._rung.clear()
        return True


class LocalQueueBell:
    """A bell on one event loop for all queues of a tenant, with the queues that it rang for."""

    def __init__(self) -> None:
        self._bell = LocalBell()
        self._lock = threading.Lock()
        self._queues: set[str] = set()
        self._for_all = False

    def ring(self, queue: str | None) -> None:
        """Ring for a queue, or for all; from any thread."""
        with self._lock:
            if queue is None:
                self._for_all = True
            else:
                self._queues.add(queue)
        self._bell.ring()

    async def wait(self, timeout: float) -> Rings:
        """The queues that it rang for, as soon as there are any; none after `timeout` seconds."""
        if not await self._bell.wait(timeout):
            return Rings()
        with self._lock:
            for_all, self._for_all = self._for_all, False
            queues, self._queues = self._queues, set()
        return Rings(frozenset(queues), for_all)


class Belfry:
    """All bells that hang in one process for one store."""

    def __init__(self) -> None:
        self._bells: dict[tuple[QueueRef, Topic], set[LocalBell]] = {}
        self._queue_bells: dict[str, set[LocalQueueBell]] = {}
        self._lock = threading.Lock()

    @asynccontextmanager
    async def hang(self, queue: QueueRef, topic: Topic) -> AsyncIterator[LocalBell]:
        """A bell for the time of the block."""
        bell = LocalBell()
        with self._lock:
            self._bells.setdefault((queue, topic), set()).add(bell)
        try:
            yield bell
        finally:
            with self._lock:
                bells = self._bells[queue, topic]
                bells.discard(bell)
                if not bells:
                    del self._bells[queue, topic]

    @asynccontextmanager
    async def hang_for_all(self, tenant: str) -> AsyncIterator[LocalQueueBell]:
        """A bell for all queues of a tenant, for the time of the block."""
        bell = LocalQueueBell()
        with self._lock:
            self._queue_bells.setdefault(tenant, set()).add(bell)
        try:
            yield bell
        finally:
            with self._lock:
                bells = self._queue_bells[tenant]
                bells.discard(bell)
                if not bells:
                    del self._queue_bells[tenant]

    def ring(self, queue: QueueRef, topic: Topic) -> None:
        """Ring the bells of one queue."""
        with self._lock:
            bells = list(self._bells.get((queue, topic), ()))
        for bell in bells:
            bell.ring()
        if self._queue_bells and topic is Topic.READY:
            self.ring_in(queue.tenant, queue.name)

    def ring_in(self, tenant: str, queue: str | None) -> None:
        """Ring the bells for all queues of a tenant: for one queue, or for any."""
        with self._lock:
            bells = list(self._queue_bells.get(tenant, ()))
        for bell in bells:
            bell.ring(queue)

    def ring_all(self) -> None:
        """Ring every bell: something changed, and it is not known what."""
        with self._lock:
            bells = [bell for hung in self._bells.values() for bell in hung]
            queue_bells = [bell for hung in self._queue_bells.values() for bell in hung]
        for bell in bells:
            bell.ring()
        for each in queue_bells:
            each.ring(None)

    @property
    def is_empty(self) -> bool:
        """True when nobody listens."""
        return not self._bells and not self._queue_bells
