"""Waiting for conditions instead of durations, for as long as a busy machine needs."""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

T = TypeVar("T")

_VARIABLE: Final = "PENSTOCK_TEST_SLOWNESS"
_REFERENCE: Final = 0.02
"""Seconds that the measured work takes on an idle machine of the kind that the timeouts were chosen on."""
_ROUNDS: Final = 3
_MOST: Final = 8.0
_BETWEEN: Final = 0.005
"""Seconds between two looks at a condition that nobody notifies of."""


def _measured() -> float:
    """How many times longer work takes here and now; processes of one run get the figure of the first."""
    if known := os.environ.get(_VARIABLE):
        return float(known)
    worst = 0.0
    for _ in range(_ROUNDS):
        began = time.perf_counter()
        sum(number * number for number in range(250_000))
        worst = max(worst, time.perf_counter() - began)
    queued = os.getloadavg()[0] / (os.cpu_count() or 1)
    slowness = min(_MOST, max(1.0, worst / _REFERENCE, queued))
    os.environ[_VARIABLE] = f"{slowness:.2f}"
    return slowness


SLOWNESS: Final = _measured()
"""The factor that every timeout of the tests is multiplied by: 1 on a quiet machine, 8 at most."""
PATIENCE: Final = 60.0 * SLOWNESS
"""Seconds after which a test gives up on what has to come. A passing test never waits that long."""


async def eventually(check: Callable[[], Awaitable[T | None]], what: str = "the condition") -> T:
    """Wait until the check gives something true, and return that."""
    end = time.monotonic() + PATIENCE
    while not (found := await check()):
        if time.monotonic() > end:
            raise TimeoutError(f"{what} did not come true within {PATIENCE:.0f} s")
        await asyncio.sleep(_BETWEEN)  # real time: a condition that nobody notifies of is polled
    return found


async def until(condition: Callable[[], T | None], what: str = "the condition") -> T:
    """Wait, letting the event loop run, until the condition gives something true, and return that."""

    async def check() -> T | None:
        return condition()

    return await eventually(check, what)


async def turns(count: int = 200) -> None:
    """Let the event loop do all that is ready, so that a test can say that something does not happen."""
    for _ in range(count):
        await asyncio.sleep(0)


def block_until(condition: Callable[[], T | None], what: str = "the condition") -> T:
    """Wait, blocking this thread, until the condition gives something true, and return that."""
    end = time.monotonic() + PATIENCE
    while not (found := condition()):
        if time.monotonic() > end:
            raise TimeoutError(f"{what} did not come true within {PATIENCE:.0f} s")
        time.sleep(_BETWEEN)  # real time: a condition that nobody notifies of is polled
    return found
