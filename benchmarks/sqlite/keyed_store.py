"""The roles of Penstock where keys, limits and delays are measured."""

import asyncio
import statistics
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from penstock import Penstock
from penstock.core.job import DEFAULT_TENANT, NewJob, QueueRef
from penstock.core.limits import MAX_COUNT, Declaration, Mode, Rate
from penstock.core.moves import Release
from penstock.stores.sqlite.store import SqliteStore
from penstock.stores.values import Durability

QUEUE: Final = QueueRef(DEFAULT_TENANT, "default")
BATCH: Final = 100
PROMOTED: Final = 200
CHUNK: Final = 1_000
HOUR_MS: Final = 3_600_000
_DECLARED: Final = {
    "keyed": Declaration(mode=Mode.KEYED, key_limit=2),
    "limited": Declaration(max_active=MAX_COUNT, max_length=MAX_COUNT, rate=Rate(1_000_000, 1, 1_000_000)),
}


def fill(path: str, kind: str, jobs: int, keys: int) -> dict[str, float]:
    """Jobs of a queue that is plain, keyed, limited, or has them delayed."""

    async def work() -> None:
        async with _store(path) as store:
            if kind in _DECLARED:
                await store.queues.declare(QUEUE, _DECLARED[kind])
            for first in range(0, jobs, CHUNK):
                many = range(first, min(jobs, first + CHUNK))
                await store.moves.enqueue(QUEUE, [_new(number, kind, keys) for number in many])

    asyncio.run(work())
    return {}


def work(path: str, jobs: int, concurrency: int) -> dict[str, float]:
    """Jobs per second of one worker, from its start until it has settled every job and stopped."""

    async def run() -> float:
        app = Penstock(f"sqlite:///{path}?durability=server")
        seen = 0

        @app.task(name="noop")
        async def noop(n: int) -> None:
            nonlocal seen
            seen += 1

        async with app:
            worker = app.worker({QUEUE.name: concurrency}, burst=True)
            start = time.perf_counter()
            await worker.run()
            took = time.perf_counter() - start
        if seen != jobs:
            raise RuntimeError(f"{seen} of {jobs} jobs were executed")
        return took

    return {"rate": jobs / asyncio.run(run())}


def claim(path: str, claims: int) -> dict[str, float]:
    """Median milliseconds of a claim; what was claimed is given back, so that as many keys wait as before."""

    async def measure() -> float:
        took = []
        async with _store(path) as store:
            for _ in range(claims):
                start = time.perf_counter()
                found = await store.moves.claim(QUEUE, worker="bench", limit=BATCH, lease_ms=60_000)
                took.append(time.perf_counter() - start)
                if len(found.jobs) != BATCH:
                    raise RuntimeError(f"{len(found.jobs)} of {BATCH} jobs were claimed")
                await store.moves.settle(QUEUE, [Release(job.id, job.token) for job in found.jobs])
        return statistics.median(took) * 1000

    return {"claim_ms": asyncio.run(measure())}


def promote(path: str, times: int) -> dict[str, float]:
    """Median microseconds per job that became due, while all the others stay delayed."""

    async def measure() -> float:
        took = []
        async with _store(path) as store:
            for number in range(times):
                base = f"{time.time_ns()}-{number}"
                due = [
                    NewJob(id=f"{base}-{i}", nonce="n", task="noop", payload=b"{}", delay_ms=1)
                    for i in range(PROMOTED)
                ]
                await store.moves.enqueue(QUEUE, due)
                await asyncio.sleep(0.005)
                start = time.perf_counter()
                moved = await store.moves.promote(QUEUE, PROMOTED)
                took.append(time.perf_counter() - start)
                if moved != PROMOTED:
                    raise RuntimeError(f"{moved} of {PROMOTED} jobs were promoted")
        return statistics.median(took) / PROMOTED * 1_000_000

    return {"promote_us": asyncio.run(measure())}


def _new(number: int, kind: str, keys: int) -> NewJob:
    return NewJob(
        id=f"job-{number}",
        nonce="n",
        task="noop",
        payload=b'{"n":%d}' % number,
        key=f"key-{number % keys}" if kind == "keyed" else None,
        delay_ms=HOUR_MS + number if kind == "delayed" else 0,
    )


@asynccontextmanager
async def _store(path: str) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(path, durability=Durability.SERVER)
    await store.open()
    try:
        yield store
    finally:
        await store.close()
