"""The clock of the event loop, for tests of what happens after a while."""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def turned_clock() -> Iterator[Callable[[float], None]]:
    """A function that turns the running event loop's clock on by so many seconds: what they bring is due."""
    loop = asyncio.get_running_loop()
    skipped = 0.0

    def turn(seconds: float) -> None:
        nonlocal skipped
        skipped += seconds

    real, loop.time = loop.time, lambda: time.monotonic() + skipped  # type: ignore[method-assign]
    try:
        yield turn
    finally:
        loop.time = real  # type: ignore[method-assign]
