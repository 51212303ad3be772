"""The cost of a claim by the depth of the queue, on the store itself."""

import asyncio
import statistics
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.beside.running import enqueue
from benchmarks.beside.side import Plan
from benchmarks.cases import OURS, Case
from benchmarks.spawn import Figures, run
from penstock.app.app import DEFAULT_QUEUE
from penstock.core.job import DEFAULT_TENANT, QueueRef
from penstock.core.moves import Release
from penstock.stores.open import open_store

BATCH: Final = 100
QUEUE: Final = QueueRef(DEFAULT_TENANT, DEFAULT_QUEUE)


def claim(plan: Plan) -> Iterator[list[Case]]:
    """Batches of 100 from few and from many pending jobs."""
    yield [
        Case(
            "claim",
            "",
            OURS,
            f"{depth:,} pending",
            partial(_claim, plan, depth),
            {"claim": "ms per claim of 100"},
        )
        for depth in plan.depths
    ]


def _claim(plan: Plan, depth: int, folder: Path) -> Figures:
    with plan.serve(folder) as server:
        enqueue(plan.sides[0], server, "fill", jobs=depth)
        return run("benchmarks.beside.depth", "claims", url=server.url, times=plan.claims)


def claims(url: str, times: int) -> Figures:
    """Median milliseconds of a claim; what was claimed is given back, so that the depth stays the same."""

    async def measure() -> float:
        store = open_store(url)
        await store.open()
        took = []
        try:
            for _ in range(times):
                start = time.perf_counter()
                found = await store.claim(QUEUE, worker="bench", limit=BATCH, lease_ms=60_000)
                took.append(time.perf_counter() - start)
                if len(found.jobs) != BATCH:
                    raise RuntimeError(f"{len(found.jobs)} of {BATCH} jobs were claimed")
                await store.settle(QUEUE, [Release(job.id, job.token) for job in found.jobs])
        finally:
            await store.close()
        return statistics.median(took) * 1000

    return {"claim": asyncio.run(measure())}
