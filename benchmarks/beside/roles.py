"""What the enqueueing process of every side does, the same for all: it only knows the side's calls."""

import asyncio
import importlib
import random
import threading
import time
from collections.abc import Sequence
from typing import Any, Final

from benchmarks.beside.calls import AsyncCalls, ThreadCalls

CHUNK: Final = 10_000
"""Jobs per call where a queue is filled or enqueued into in bulk."""


def fill(side: str, jobs: int) -> dict[str, float]:
    """Jobs per second by the side's bulk call; the first job, which opens its connection, is not timed."""
    chunks = [range(first, min(jobs, first + CHUNK)) for first in range(1, jobs, CHUNK)]
    return {"rate": (jobs - 1) / _run(side, _fill_async, _fill, chunks)}


async def _fill_async(calls: AsyncCalls, chunks: Sequence[Sequence[int]]) -> float:
    await calls.many(range(1))
    start = time.perf_counter()
    for chunk in chunks:
        await calls.many(chunk)
    return time.perf_counter() - start


def _fill(calls: ThreadCalls, chunks: Sequence[Sequence[int]]) -> float:
    calls.many(range(1))
    start = time.perf_counter()
    for chunk in chunks:
        calls.many(chunk)
    return time.perf_counter() - start


def single(side: str, jobs: int, callers: int) -> dict[str, float]:
    """Jobs per second enqueued one at a time by so many coroutines or threads, each awaiting its own."""
    share = jobs // callers
    return {"rate": share * callers / _run(side, _single_async, _single, share, callers)}


async def _single_async(calls: AsyncCalls, share: int, callers: int) -> float:
    async def call(jobs: int) -> None:
        for number in range(jobs):
            await calls.noop(number)

    async def all_callers(jobs: int) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(callers):
                group.create_task(call(jobs))

    # Connections and scripts are there when the clock starts.
    await all_callers(1)
    start = time.perf_counter()
    await all_callers(share)
    return time.perf_counter() - start


def _single(calls: ThreadCalls, share: int, callers: int) -> float:
    gate = threading.Barrier(callers + 1)

    def call() -> None:
        calls.noop(0)
        gate.wait()
        for number in range(share):
            calls.noop(number)

    threads = [threading.Thread(target=call) for _ in range(callers)]
    for thread in threads:
        thread.start()
    gate.wait()
    start = time.perf_counter()
    for thread in threads:
        thread.join()
    return time.perf_counter() - start


def send(side: str, samples: int, pause: float) -> dict[str, float]:
    """Enqueue stamped jobs one at a time, with uneven pauses around `pause` seconds."""
    _run(side, _send_async, _send, samples, pause)
    return {}


async def _send_async(calls: AsyncCalls, samples: int, pause: float) -> float:
    for _ in range(samples):
        await asyncio.sleep(pause * random.uniform(0.5, 1.5))
        await calls.stamped(time.monotonic_ns())
    return 0.0


def _send(calls: ThreadCalls, samples: int, pause: float) -> float:
    for _ in range(samples):
        time.sleep(pause * random.uniform(0.5, 1.5))
        calls.stamped(time.monotonic_ns())
    return 0.0


def _run(side: str, as_coroutine: Any, as_function: Any, *arguments: Any) -> float:
    """Run whichever of the two fits the side."""
    opened = importlib.import_module(side).calls()
    if not hasattr(opened, "__aenter__"):
        with opened as calls:
            took: float = as_function(calls, *arguments)
            return took

    async def run() -> float:
        async with opened as calls:
            found: float = await as_coroutine(calls, *arguments)
            return found

    return asyncio.run(run())
