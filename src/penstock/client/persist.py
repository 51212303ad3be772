"""Calling again when the store could not be reached."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from penstock.core.errors import StoreUnavailableError

T = TypeVar("T")


class Persistence:
    """Repeats calls that are harmless to repeat: `tries` calls within `patience` seconds, full jitter."""

    def __init__(
        self,
        tries: int = 5,
        patience: float = 30.0,
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        uniform: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._tries = tries
        self._patience = patience
        self._sleep = sleep
        self._uniform = uniform

    async def call(self, call: Callable[[], Awaitable[T]]) -> T:
        """The answer, or the last error."""
        loop = asyncio.get_running_loop()
        end = loop.time() + self._patience
        tried = 0
        while True:
            try:
                return await call()
            except StoreUnavailableError:
                tried += 1
                left = end - loop.time()
                if tried >= self._tries or left <= 0:
                    raise
                await self._sleep(min(left, self._uniform(0, min(5.0, 0.1 * 2**tried))))
