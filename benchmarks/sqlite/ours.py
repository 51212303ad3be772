"""The roles of Penstock, through its public face."""

import asyncio
import random
import sys
import time
from collections.abc import Coroutine
from typing import Any

from benchmarks.idle import IdleCost
from penstock import Penstock

CHUNK = 10_000
"""Jobs per call of `enqueue_many` where a queue is filled."""


def fill(path: str, jobs: int, is_sync: bool = False) -> dict[str, float]:
    """Put jobs in by the bulk path; seconds that took."""

    async def run() -> float:
        app, task = _with_noop(path, "server")
        async with app:
            start = time.perf_counter()
            for first in range(0, jobs, CHUNK):
                await task.enqueue_many([(number,) for number in range(first, min(jobs, first + CHUNK))])
            return time.perf_counter() - start

    return {"seconds": asyncio.run(run())}


def work(
    path: str, durability: str, jobs: int, concurrency: int, is_sync: bool, is_uvloop: bool
) -> dict[str, float]:
    """Jobs per second of one worker, from its start until it has settled every job and stopped."""

    async def run() -> float:
        app = _app(path, durability)
        seen = 0

        async def noop(n: int) -> None:
            nonlocal seen
            seen += 1

        def noop_sync(n: int) -> None:
            nonlocal seen
            seen += 1

        app.task(name="noop")(noop_sync if is_sync else noop)
        async with app:
            worker = app.worker({"default": concurrency}, burst=True)
            start = time.perf_counter()
            await worker.run()
            took = time.perf_counter() - start
        if seen != jobs:
            raise RuntimeError(f"{seen} of {jobs} jobs were executed")
        return took

    return {"rate": jobs / _run(run(), is_uvloop)}


def single(path: str, durability: str, jobs: int, callers: int, is_uvloop: bool) -> dict[str, float]:
    """Jobs per second enqueued one at a time by so many coroutines."""
    share = jobs // callers

    async def run() -> float:
        app, task = _with_noop(path, durability)

        async def call() -> None:
            for number in range(share):
                await task.enqueue(number)

        async with app:
            await task.enqueue(0)
            start = time.perf_counter()
            async with asyncio.TaskGroup() as group:
                for _ in range(callers):
                    group.create_task(call())
            return time.perf_counter() - start

    return {"rate": share * callers / _run(run(), is_uvloop)}


def bulk(path: str, durability: str, jobs: int) -> dict[str, float]:
    """Jobs per second by one `enqueue_many`."""

    async def run() -> float:
        app, task = _with_noop(path, durability)
        async with app:
            await task.enqueue(0)
            start = time.perf_counter()
            await task.enqueue_many([(number,) for number in range(jobs)])
            return time.perf_counter() - start

    return {"rate": jobs / asyncio.run(run())}


def consume(path: str, durability: str, concurrency: int) -> dict[str, Any]:
    """Idle until told to stop; how long each job took from before its enqueue to its handler, in ms."""
    waits: list[float] = []

    async def run() -> dict[str, float]:
        app = _app(path, durability)

        @app.task(name="stamped")
        async def stamped(sent: int) -> None:
            waits.append((time.monotonic_ns() - sent) / 1e6)

        async with app:
            worker = asyncio.create_task(app.worker({"default": concurrency}).run())
            await asyncio.sleep(0.5)
            print("ready", flush=True)
            await asyncio.sleep(0.5)
            cost = IdleCost()
            await asyncio.to_thread(sys.stdin.readline)
            figures = cost.figures()
            worker.cancel()
            await asyncio.wait([worker])
            return figures

    return asyncio.run(run()) | {"waits": waits}


def send(path: str, durability: str, samples: int, pause: float) -> dict[str, float]:
    """Enqueue stamped jobs one at a time, with uneven pauses around `pause` seconds."""

    async def run() -> None:
        app = _app(path, durability)

        @app.task(name="stamped")
        async def stamped(sent: int) -> None:
            raise NotImplementedError

        async with app:
            for _ in range(samples):
                await asyncio.sleep(pause * random.uniform(0.5, 1.5))
                await stamped.enqueue(time.monotonic_ns())
            await asyncio.sleep(1)

    asyncio.run(run())
    return {}


def _app(path: str, durability: str) -> Penstock:
    return Penstock(f"sqlite:///{path}?durability={durability}")


def _with_noop(path: str, durability: str) -> tuple[Penstock, Any]:
    app = _app(path, durability)

    @app.task(name="noop")
    async def noop(n: int) -> None:
        pass

    return app, noop


def _run(measured: Coroutine[Any, Any, float], is_uvloop: bool) -> float:
    if is_uvloop:
        import uvloop

        return uvloop.run(measured)
    return asyncio.run(measured)
