"""What the measured processes do."""

import asyncio
import sys
import time

from benchmarks.bloom.plan import BATCH
from penstock import Penstock
from penstock.bloom.filters import Filters
from penstock.bloom.rotating import CLEANUP, GHOST, IDEMPOTENCY
from penstock.core.job import QueueRef
from penstock.stores.protocol import Store

QUEUE = QueueRef("default", "default")


def enqueue(url: str, jobs: int, size: int, duplicates: float, filtered: bool) -> dict[str, float]:
    """Jobs with idempotency keys, all different ones first; their rate and the time that they take here."""
    app = Penstock(url, filters=Filters(idempotency=IDEMPOTENCY) if filtered else None)

    @app.task
    async def store(text: str) -> None: ...

    text, different = "x" * size, max(1, round(jobs * (1 - duplicates)))

    async def measure() -> dict[str, float]:
        async with app:
            await store.options(idempotency_key="first").enqueue(text)
            start, spent = time.perf_counter(), time.process_time()
            for first in range(0, jobs, BATCH):
                keys = [f"k{n % different}" for n in range(first, min(first + BATCH, jobs))]
                calls = [store.options(idempotency_key=key).call(text) for key in keys]
                await store.enqueue_many(calls)
            took = time.perf_counter() - start
            return {"rate": jobs / took, "client": (time.process_time() - spent) / jobs * 1e6}

    return asyncio.run(measure())


def pass_over(url: str, ghosts: int, filtered: bool) -> dict[str, float]:
    """Ids deleted while they waited, ahead of one job; how long and how many claims it takes to reach it."""
    app = Penstock(url, filters=Filters(ghost=GHOST) if filtered else None)

    @app.task
    async def noop(n: int) -> None: ...

    async def measure() -> dict[str, float]:
        async with app:
            for first in range(0, ghosts, BATCH):
                made = await noop.enqueue_many([(n,) for n in range(first, min(first + BATCH, ghosts))])
                await app.store.moves.delete(QUEUE, [each.id for each in made])
            await noop.enqueue(0)
            _wait_to_begin()
            claims, start, spent = 0, time.perf_counter(), time.process_time()
            while True:
                claims += 1
                if await _claim(app.store):
                    break
            return {
                "seconds": time.perf_counter() - start,
                "claims": claims,
                "client": (time.process_time() - spent) * 1000,
            }

    return asyncio.run(measure())


def purge(url: str, jobs: int, purgers: int, filtered: bool) -> dict[str, float]:
    """Several purge one queue at once; how long it takes, and for how many ids a deletion is asked for."""
    app = Penstock(url, filters=Filters(cleanup=CLEANUP) if filtered else None)

    @app.task
    async def noop(n: int) -> None: ...

    async def measure() -> dict[str, float]:
        async with app:
            for first in range(0, jobs, BATCH):
                await noop.enqueue_many([(n,) for n in range(first, min(first + BATCH, jobs))])
            asked, delete = 0, app.store.moves.delete

            async def counted(queue: QueueRef, ids: list[str]) -> object:
                nonlocal asked
                asked += len(ids)
                return await delete(queue, ids)

            app.store.moves.delete = counted  # type: ignore[assignment, method-assign]
            _wait_to_begin()
            start, spent = time.perf_counter(), time.process_time()
            queue = app.queue("default")
            gone = await asyncio.gather(*(queue.purge() for _ in range(purgers)))
            if sum(gone) != jobs:
                raise RuntimeError(f"{sum(gone)} of {jobs} jobs were deleted")
            took = time.perf_counter() - start
            return {
                "rate": jobs / took,
                "asked": asked / jobs,
                "client": (time.process_time() - spent) * 1000,
            }

    return asyncio.run(measure())


def _wait_to_begin() -> None:
    """What was prepared is none of what is measured, on the server's side neither."""
    print("ready", flush=True)
    sys.stdin.readline()


async def _claim(store: Store) -> bool:
    claims = await store.moves.claim(QUEUE, worker="bench", limit=10, lease_ms=30_000)
    return bool(claims.jobs)
