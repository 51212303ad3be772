"""Lets a number of calls through at once; others wait for a bounded time."""

import asyncio

from penstock.core.errors import PoolTimeoutError


class Gate:
    """So many calls at once; `full` says what it means that there is no room."""

    def __init__(self, count: int, seconds: float, full: str) -> None:
        self._room = asyncio.Semaphore(count)
        self._seconds = seconds
        self._full = full

    async def enter(self) -> None:
        """Begin a call; PoolTimeoutError where there is no room for it in time."""
        if not self._room.locked():
            await self._room.acquire()
            return
        try:
            async with asyncio.timeout(self._seconds):
                await self._room.acquire()
        except TimeoutError:
            raise PoolTimeoutError(f"{self._full} for {self._seconds:g} s: nothing was sent") from None

    def leave(self) -> None:
        """The end of a call."""
        self._room.release()
