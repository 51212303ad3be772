"""Who shares an event loop: the jobs of one worker may hold up all others on it."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final
from weakref import WeakKeyDictionary

_WORKERS: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, int]] = WeakKeyDictionary()


@contextmanager
def sharing() -> Iterator[None]:
    """A worker runs on this event loop for the time of the block."""
    loop = asyncio.get_running_loop()
    _WORKERS[loop] = _WORKERS.get(loop, 0) + 1
    try:
        yield
    finally:
        _WORKERS[loop] -= 1


def is_alone() -> bool:
    """True while no more than one worker runs on this event loop."""
    return _WORKERS.get(asyncio.get_running_loop(), 0) <= 1
