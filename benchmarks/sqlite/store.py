"""What one claim of 100 jobs costs in a store that holds many."""

import asyncio
import statistics
import time

from penstock.core.job import DEFAULT_TENANT, QueueRef
from penstock.core.moves import Release
from penstock.stores.sqlite.store import SqliteStore
from penstock.stores.values import Durability

_QUEUE = QueueRef(DEFAULT_TENANT, "default")
BATCH = 100


def claim(path: str, durability: str, claims: int) -> dict[str, float]:
    """Median milliseconds of a claim; what was claimed is given back, so that the depth stays the same."""
    return {"ms": asyncio.run(_claim(path, durability, claims))}


async def _claim(path: str, durability: str, claims: int) -> float:
    store = SqliteStore(path, durability=Durability(durability))
    await store.open()
    took = []
    try:
        for _ in range(claims):
            start = time.perf_counter()
            found = await store.moves.claim(_QUEUE, worker="bench", limit=BATCH, lease_ms=60_000)
            took.append(time.perf_counter() - start)
            if len(found.jobs) != BATCH:
                raise RuntimeError(f"{len(found.jobs)} of {BATCH} jobs were claimed")
            await store.moves.settle(_QUEUE, [Release(job.id, job.token) for job in found.jobs])
    finally:
        await store.close()
    return statistics.median(took) * 1000
