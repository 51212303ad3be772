"""Repeats calls while the store cannot be reached."""

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from penstock.core.errors import StoreUnavailableError
from penstock.core.repeated_failures import RepeatedFailures
from penstock.core.retry_pause import RetryPause

_LOGGER: Final = logging.getLogger("penstock.client")
T = TypeVar("T")
PAUSE: Final = RetryPause(0.1, 3.0)
"""Between two tries; never long, so that a store that is back is found soon."""


class RetryingCaller:
    """Repeats calls that are harmless to repeat, for up to `retry_timeout` seconds and `tries` calls.

    Pauses have full jitter. The reason is logged once, however many calls wait.
    """

    def __init__(
        self,
        tries: int | None = None,
        retry_timeout: float = 30.0,
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        uniform: Callable[[float, float], float] = random.uniform,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._tries = tries
        self._retry_timeout = retry_timeout
        self._sleep = sleep
        self._uniform = uniform
        self._clock = clock
        self._reasons = RepeatedFailures()

    async def call(self, call: Callable[[], Awaitable[T]]) -> T:
        """The answer, or the last error."""
        end = self._clock() + self._retry_timeout
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
                    _LOGGER.warning("store unavailable, retrying for up to %.1f s: %s", left, error)
                await self._sleep(min(left, PAUSE.after(tried, self._uniform)))
            else:
                if self._reasons.over():
                    _LOGGER.info("store available again")
                return answer
