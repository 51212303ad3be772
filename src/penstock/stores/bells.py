"""Bells within one process: rung by whoever changed something, from any thread."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from penstock.core.job import QueueRef
from penstock.stores.values import Topic


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

    async def wait(self, timeout: float) -> bool:
        """True as soon as it rings; False after `timeout` seconds."""
        try:
            async with asyncio.timeout(timeout):
                await self._rung.wait()
        except TimeoutError:
            return False
        self._rung.clear()
        return True


class Belfry:
    """All bells that hang in one process for one store."""

    def __init__(self) -> None:
        self._bells: dict[tuple[QueueRef, Topic], set[LocalBell]] = {}
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

    def ring(self, queue: QueueRef, topic: Topic) -> None:
        """Ring the bells of one queue."""
        with self._lock:
            bells = list(self._bells.get((queue, topic), ()))
        for bell in bells:
            bell.ring()

    def ring_all(self) -> None:
        """Ring every bell: something changed, and it is not known what."""
        with self._lock:
            bells = [bell for hung in self._bells.values() for bell in hung]
        for bell in bells:
            bell.ring()

    @property
    def is_empty(self) -> bool:
        """True when nobody listens."""
        return not self._bells
