"""What a job leaves behind is freed at once: nothing of it waits for the collector."""

import asyncio
import gc
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any

import pytest

from penstock.core.job import QueueRef
from penstock.stores.protocol import Store
from tests.worker.kit import Desk

JOBS = 60


async def returns() -> None: ...


async def waits() -> None:
    goes_on = asyncio.Event()
    asyncio.get_running_loop().call_soon(goes_on.set)
    await goes_on.wait()


async def fails() -> None:
    raise ValueError


def returns_in_a_thread() -> None: ...


def fails_in_a_thread() -> None:
    raise ValueError


@pytest.mark.parametrize("handler", [returns, waits, fails, returns_in_a_thread, fails_in_a_thread])
async def test_a_job_leaves_nothing_to_the_collector(
    store: Store, queue: QueueRef, handler: Callable[[], Any]
) -> None:
    desk = Desk(queue, store)

    async def work_off(jobs: int) -> None:
        for _ in range(jobs):
            await desk.enqueue(handler.__name__, max_attempts=1)
        await desk.burst(handler, concurrency=8)

    await work_off(2)
    with garbage() as found:
        await work_off(JOBS)

    # The worker itself leaves a few; what every job leaves is there as often as there were jobs.
    assert {kind: count for kind, count in found.items() if count >= JOBS} == {}


@contextmanager
def garbage() -> Iterator[Counter[str]]:
    """How many of each kind only the collector could free, when the block has ended."""
    found: Counter[str] = Counter()
    gc.collect()
    # What other tests left may become garbage meanwhile: a collection looks at what was made since alone.
    gc.freeze()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        yield found
        gc.collect()
        # Lists and the like say nothing: the loop and the tests make some too.
        found.update(
            type(each).__name__
            for each in gc.garbage
            if isinstance(each, asyncio.Task | TracebackType) or type(each).__module__.startswith("penstock")
        )
    finally:
        gc.unfreeze()
        gc.garbage.clear()
        gc.set_debug(0)
        gc.enable()
