"""How many jobs run at once, and who waits for that to change."""

import asyncio
import time
from collections.abc import Callable

import msgspec


class Usage(msgspec.Struct, frozen=True):
    """What slots have done since they were made."""

    ended: int
    """Executions that ended."""
    busy_seconds: float
    """Time for which slots were taken, added up over all of them."""


class Slots:
    """`count` places for running jobs, on one event loop."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.taken = 0
        self._ended = 0
        self._busy_seconds = 0.0
        self._counted_at = time.monotonic()
        self._free = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self.when_idle: Callable[[], None] | None = None

    @property
    def spare(self) -> int:
        """How many are free."""
        return self.count - self.taken

    def usage(self) -> Usage:
        """What they have done up to now."""
        self._count_time()
        return Usage(self._ended, self._busy_seconds)

    def resize(self, count: int) -> None:
        """Have so many from now on. What runs beyond that goes on until it ends."""
        self.count = count
        self._free.set()

    def take(self, count: int) -> None:
        """Take so many; the caller asked `spare` before."""
        if not count:
            return
        self._count_time()
        self.taken += count
        self._idle.clear()

    def give_back(self, count: int) -> None:
        """Give so many back, and wake who waits."""
        if not count:
            return
        self._count_time()
        self._ended += count
        self.taken -= count
        self._free.set()
        if not self.taken:
            self._idle.set()
            if self.when_idle is not None:
                self.when_idle()

    def write_off(self) -> None:
        """Count one no longer: what holds it may never end."""
        self.count -= 1
        self.give_back(1)

    def take_on(self) -> None:
        """Count one again that was written off: what held it has ended after all."""
        self.count += 1
        self.take(1)

    async def free(self) -> None:
        """Wait until one is free, or until woken."""
        if self.taken >= self.count:
            self._free.clear()
            await self._free.wait()

    async def idle(self) -> None:
        """Wait until nothing runs."""
        await self._idle.wait()

    def _count_time(self) -> None:
        now = time.monotonic()
        self._busy_seconds += self.taken * (now - self._counted_at)
        self._counted_at = now

    def wake(self) -> None:
        """Let `free` return in the next turn of the loop, whatever is free."""
        self._free.set()
