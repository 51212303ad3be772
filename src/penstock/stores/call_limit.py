"""Bounds the calls that are made at once; further calls wait for a bounded time."""

import asyncio

from penstock.core.errors import PoolTimeoutError


class CallLimit:
    """At most `count` calls at once. `full` is the message of a call that found no room in time."""

    def __init__(self, count: int, seconds: float, full: str) -> None:
        self._free = asyncio.Semaphore(count)
        self._seconds = seconds
        self._full = full

    async def acquire(self) -> None:
        """Begin a call; PoolTimeoutError where there is no room for it in time."""
        if not self._free.locked():
            await self._free.acquire()
            return
        try:
            async with asyncio.timeout(self._seconds):
                await self._free.acquire()
        except TimeoutError:
            raise PoolTimeoutError(f"{self._full} for {self._seconds:g} s: nothing was sent") from None

    def release(self) -> None:
        """The end of a call."""
        self._free.release()
