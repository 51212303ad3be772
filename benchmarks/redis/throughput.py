"""Processing, bulk enqueues and single enqueues of all sides, in jobs per second."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.cases import Case
from benchmarks.redis import server as servers
from benchmarks.redis.plan import Plan
from benchmarks.redis.running import enqueue, worker
from benchmarks.redis.sides import CONCURRENCY, Side
from benchmarks.spawn import Figures

RATE: Final = {"rate": "jobs/s"}


def processing(plan: Plan) -> Iterator[list[Case]]:
    """Jobs enqueued beforehand, worked off by one worker."""
    yield [
        Case(
            "processing",
            "",
            side.name,
            side.label,
            partial(_process, server=plan.server, side=side, jobs=plan.processing(side)),
            RATE,
        )
        for side in (*plan.sides, *plan.extras)
    ]


def bulk(plan: Plan) -> Iterator[list[Case]]:
    """Many enqueues by the call that a side has for that."""
    yield [
        Case("bulk", "", side.name, side.bulk, partial(_bulk, plan.server, side, plan.enqueues(side)), RATE)
        for side in plan.sides
    ]


def single(plan: Plan) -> Iterator[list[Case]]:
    """Enqueues one at a time, each waited for, by many callers in one process."""
    yield [
        Case(
            "single",
            "",
            side.name,
            side.callers,
            partial(_single, plan.server, side, plan.enqueues(side)),
            RATE,
        )
        for side in plan.sides
    ]


def drained(server: servers.Server, side: Side, folder: Path, jobs: int) -> float:
    """Jobs per second between the first look that sees one executed and the look that sees all."""
    with worker(side, server, folder) as running:
        start = running.wait_until(1)
        before = running.executed()
        end = running.wait_until(jobs)
        return (jobs - before) / (end - start)


def _process(folder: Path, *, server: str, side: Side, jobs: int) -> Figures:
    with servers.running(server, folder) as running:
        enqueue(side, running, "fill", jobs=jobs)
        return {"rate": drained(running, side, folder, jobs)}


def _bulk(server: str, side: Side, jobs: int, folder: Path) -> Figures:
    with servers.running(server, folder) as running:
        return enqueue(side, running, "fill", jobs=jobs)


def _single(server: str, side: Side, jobs: int, folder: Path) -> Figures:
    with servers.running(server, folder) as running:
        return enqueue(side, running, "single", jobs=jobs, callers=CONCURRENCY)
