"""The cost of a claim by the depth of the queue, on the store itself."""

import asyncio
import secrets
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.beside.running import enqueue
from benchmarks.beside.side import Plan
from benchmarks.cases import OURS, Case
from benchmarks.spawn import Figures, run
from penstock.app.app import DEFAULT_QUEUE
from penstock.core.job import DEFAULT_TENANT, Claimed, NewJob, QueueRef
from penstock.core.moves import Complete
from penstock.stores.open import open_store
from penstock.stores.protocol import Store

BATCH: Final = 100
FEW: Final = "few"
MANY: Final = "many"
QUEUE: Final = QueueRef(DEFAULT_TENANT, DEFAULT_QUEUE)
_TURN: Final = 5
"""Claims of one depth before the other has its turn: what disturbs the machine meets both."""


def claim(plan: Plan) -> Iterator[list[Case]]:
    """Batches of 100 from few and from many pending jobs, on a server each."""
    few, many = plan.depths
    units = {
        FEW: f"ms per claim of {BATCH}, {few:,} pending",
        MANY: f"ms per claim of {BATCH}, {many:,} pending",
    }
    yield [Case("claim", "", OURS, "claim, complete, enqueue as many", partial(_claim, plan), units)]


def _claim(plan: Plan, folder: Path) -> Figures:
    with ExitStack() as running:
        urls = []
        for depth in plan.depths:
            server = running.enter_context(plan.serve(folder / str(depth)))
            enqueue(plan.sides[0], server, "fill", jobs=depth)
            urls.append(server.url)
        return run("benchmarks.beside.depth", "claims", urls=urls, times=plan.claims)


def claims(urls: Sequence[str], times: int) -> Figures:
    """Median milliseconds of a claim on each server."""
    few, many = asyncio.run(_measured(urls, times))
    return {FEW: few, MANY: many}


async def _measured(urls: Sequence[str], times: int) -> list[float]:
    stores = [open_store(url) for url in urls]
    took: list[list[float]] = [[] for _ in stores]
    async with AsyncExitStack() as opened:
        for store in stores:
            await store.open()
            opened.push_async_callback(store.close)
        for _ in range(times // _TURN):
            for store, its in zip(stores, took, strict=True):
                its += [await _timed(store) for _ in range(_TURN)]
    return [statistics.median(each) * 1000 for each in took]


async def _timed(store: Store) -> float:
    """One claim. As many jobs as it took come in, so that the depth stays, and each is claimed but once."""
    start = time.perf_counter()
    found = await store.moves.claim(QUEUE, worker="bench", limit=BATCH, lease_ms=60_000)
    took = time.perf_counter() - start
    if len(found.jobs) != BATCH:
        raise RuntimeError(f"{len(found.jobs)} of {BATCH} jobs were claimed")
    await store.moves.settle(QUEUE, [Complete(job.id, job.token) for job in found.jobs])
    await store.moves.enqueue(QUEUE, [_next(job) for job in found.jobs])
    return took


def _next(job: Claimed) -> NewJob:
    return NewJob(
        id=secrets.token_hex(16),
        nonce=secrets.token_hex(8),
        task=job.task,
        payload=job.payload,
        priority=job.priority,
        options=job.options,
    )
