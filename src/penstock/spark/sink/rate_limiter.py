"""No more rows per second than were asked for."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final

_BURST: Final = 0.1
"""Seconds that may go at once: waiting for less would only cost time."""


class RateLimiter:
    """Lets through so many per second; any number where None is given."""

    def __init__(
        self,
        per_second: float | None,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._per_second = per_second
        self._clock = clock
        self._sleep = sleep
        self._free_at = clock()

    @property
    def most(self) -> int | None:
        """How many to let through at once."""
        return None if self._per_second is None else max(1, int(self._per_second * _BURST))

    async def wait(self, count: int) -> None:
        """Wait until so many more may go."""
        if self._per_second is None:
            return
        now = self._clock()
        free_at = max(self._free_at, now)
        self._free_at = free_at + count / self._per_second
        if free_at > now:
            await self._sleep(free_at - now)
