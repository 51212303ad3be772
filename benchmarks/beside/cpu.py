"""Processor time per job of the workers and of the server, for one and for two workers."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.beside.depth import QUEUE
from benchmarks.beside.running import enqueue, worker
from benchmarks.beside.side import Plan, Server
from benchmarks.cases import OURS, Case
from benchmarks.machine import spent
from benchmarks.spawn import Failed, Figures, run
from penstock.stores.open import open_store
from penstock.stores.values import Pause

UNITS: Final = {"client": "µs of the workers per job", "server": "µs of the server per job", "rate": "jobs/s"}
_MODULE: Final = "benchmarks.beside.cpu"
_START_SECONDS: Final = 20.0
_REST_SECONDS: Final = 0.5


def cpu(plan: Plan) -> Iterator[list[Case]]:
    """The same jobs by one worker and by two."""
    yield [
        Case(
            "cpu",
            "",
            OURS,
            f"{count} worker{'s' * (count > 1)}",
            partial(_cost, plan, count),
            UNITS,
        )
        for count in (1, 2)
    ]


def pause(url: str, is_paused: bool) -> Figures:
    """Stop claims from the queue, or let them go on."""

    async def work() -> None:
        store = open_store(url)
        await store.open()
        try:
            await store.pause(QUEUE, Pause(at=0) if is_paused else None)
        finally:
            await store.close()

    asyncio.run(work())
    return {}


def _cost(plan: Plan, workers: int, folder: Path) -> Figures:
    side = plan.sides[0]
    jobs = plan.processing(side)
    with plan.serve(folder) as server, ExitStack() as stack:
        enqueue(side, server, "fill", jobs=jobs)
        run(_MODULE, "pause", url=server.url, is_paused=True)
        started = [stack.enter_context(worker(side, server, folder, place)) for place in range(workers)]
        _await_listeners(server, workers)
        # What starting costs is not part of a job.
        pids = [each.process.pid for each in started]
        client, served = spent(pids), server.spent()
        run(_MODULE, "pause", url=server.url, is_paused=False)
        start = started[0].wait_until(1)
        end = started[0].wait_until(jobs)
        client, served = spent(pids) - client, server.spent() - served
    return {"client": client / jobs * 1e6, "server": served / jobs * 1e6, "rate": jobs / (end - start)}


def _await_listeners(server: Server, count: int) -> None:
    """Wait until so many workers listen for wake-ups, and have come to rest after that."""
    end = time.monotonic() + _START_SECONDS
    while True:
        if server.listeners() >= count:
            break
        if time.monotonic() > end:
            raise Failed(f"{count} workers did not start in {_START_SECONDS:.0f} s")
        time.sleep(0.05)
    time.sleep(_REST_SECONDS)
