"""Calling again when the store could not be reached."""

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from penstock.core.errors import StoreUnavailableError
from penstock.core.reasons import Reasons

_LOGGER: Final = logging.getLogger("penstock.client")
T = TypeVar("T")
LONGEST_PAUSE: Final = 3.0
"""Between two tries, in seconds: a store that is back is found soon."""


class Persistence:
    """Repeats calls that are harmless to repeat, until `patience` seconds are over; pauses have full jitter.

    With `tries`, no more than so many calls. Why it repeats is told once, however many calls wait.
    """

    def __init__(
        self,
        tries: int | None = None,
        patience: float = 30.0,
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        uniform: Callable[[float, float], float] = random.uniform,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._tries = tries
        self._patience = patience
        self._sleep = sleep
        self._uniform = uniform
        self._clock = clock
        self._reasons = Reasons()

    async def call(self, call: Callable[[], Awaitable[T]]) -> T:
        """The answer, or the last error."""
        end = self._clock() + self._patience
        tried = 0
        while True:
            try:
                answer = await call()
            except StoreUnavailableError as error:
                tried += 1
                left = end - self._clock()
                if tried == self._tries or left <= 0:
                    raise
                if self._reasons.is_new(error):
                    _LOGGER.warning("the store does not serve, will repeat for up to %.1f s: %s", left, error)
                longest = min(LONGEST_PAUSE, 0.1 * 2 ** min(tried, 10))
                await self._sleep(min(left, self._uniform(0, longest)))
            else:
                if self._reasons.over():
                    _LOGGER.info("the store serves again")
                return answer
