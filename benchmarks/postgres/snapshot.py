"""The cost of a claim while a transaction stays open that keeps every old version of a row."""

import asyncio
import statistics
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

import psycopg

from benchmarks.beside.depth import BATCH, QUEUE
from benchmarks.beside.running import enqueue
from benchmarks.cases import OURS, Case
from benchmarks.postgres.plan import Plan
from benchmarks.spawn import Figures, run
from penstock.core.moves import Complete
from penstock.stores.open import open_store

FIRST: Final = "first"
LAST: Final = "last"
_SHARE: Final = 10
"""Which part of the claims is the beginning, and which the end."""


def snapshot(plan: Plan) -> Iterator[list[Case]]:
    """Jobs flow through the store the whole time."""
    units = {FIRST: "ms per claim of 100 at first", LAST: "ms per claim of 100 at last"}
    yield [Case("snapshot", "", OURS, f"{plan.flow:,} jobs", partial(_claim, plan), units)]


def _claim(plan: Plan, folder: Path) -> Figures:
    with plan.serve(folder) as server:
        enqueue(plan.sides[0], server, "fill", jobs=plan.flow)
        with psycopg.connect(server.url) as old:
            old.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            old.execute("SELECT 1")
            return run("benchmarks.postgres.snapshot", "drain", url=server.url, jobs=plan.flow)


def drain(url: str, jobs: int) -> Figures:
    """Median milliseconds of the first and of the last tenth of the claims that work all jobs off."""

    async def measure() -> list[float]:
        store = open_store(url)
        await store.open()
        took = []
        try:
            for _ in range(jobs // BATCH):
                start = time.perf_counter()
                found = await store.moves.claim(QUEUE, worker="bench", limit=BATCH, lease_ms=60_000)
                took.append((time.perf_counter() - start) * 1000)
                await store.moves.settle(QUEUE, [Complete(job.id, job.token) for job in found.jobs])
        finally:
            await store.close()
        return took

    took = asyncio.run(measure())
    part = max(1, len(took) // _SHARE)
    return {FIRST: statistics.median(took[:part]), LAST: statistics.median(took[-part:])}
