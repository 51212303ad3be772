"""A worker that reaches its store through the service, beside one that opens the file itself."""

import asyncio
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.cases import OURS, Case
from benchmarks.http.creating import DIRECT
from benchmarks.http.plan import Plan
from benchmarks.http.serving import file_url, served
from benchmarks.spawn import Figures, run
from penstock import Penstock
from penstock.tasks.task import Task

SLOTS: Final = 100
"""A claim from a server takes half of them: batches of 50."""
_MODULE: Final = "benchmarks.http.working"
_RATE: Final = {"rate": "jobs/s"}


def working(plan: Plan) -> Iterator[list[Case]]:
    """Jobs that do nothing, claimed, executed and settled."""
    label = f"{SLOTS} slots"
    yield [
        Case("worker", "", OURS, f"over HTTP, {label}", partial(_remote, plan), _RATE),
        Case("worker", "", DIRECT, label, partial(_direct, plan), _RATE),
    ]


def _remote(plan: Plan, folder: Path) -> Figures:
    run(_MODULE, "fill", url=file_url(folder), jobs=plan.jobs)
    with served(folder) as (address, token):
        return run(_MODULE, "drain", environment={"PENSTOCK_TOKEN": token}, url=address, jobs=plan.jobs)


def _direct(plan: Plan, folder: Path) -> Figures:
    run(_MODULE, "fill", url=file_url(folder), jobs=plan.jobs)
    return run(_MODULE, "drain", url=file_url(folder), jobs=plan.jobs)


def _app(url: str) -> tuple[Penstock, Task[..., ..., None]]:
    app = Penstock(url)

    @app.queue("bench").task
    async def noop(n: int) -> None:
        return None

    return app, noop


def fill(url: str, jobs: int) -> Figures:
    """Jobs to work off."""

    async def work() -> None:
        app, noop = _app(url)
        async with app:
            for first in range(0, jobs, 1_000):
                await noop.enqueue_many([(n,) for n in range(first, min(jobs, first + 1_000))])

    asyncio.run(work())
    return {"jobs": float(jobs)}


def drain(url: str, jobs: int) -> Figures:
    """Work off all of them."""

    async def work() -> float:
        app, _ = _app(url)
        began = time.perf_counter()
        await app.worker(concurrency=SLOTS, burst=True).run()
        return jobs / (time.perf_counter() - began)

    return {"rate": asyncio.run(work())}
