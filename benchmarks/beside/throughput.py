"""Processing, bulk enqueues and single enqueues of all sides, in jobs per second."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.beside.running import enqueue, set_up, worker
from benchmarks.beside.side import CONCURRENCY, Plan, Server, Side
from benchmarks.cases import Case
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
            partial(_process, plan, side),
            RATE,
        )
        for side in (*plan.sides, *plan.extras)
    ]


def bulk(plan: Plan) -> Iterator[list[Case]]:
    """Many enqueues by the call that a side has for that."""
    yield [Case("bulk", "", side.name, side.bulk, partial(_bulk, plan, side), RATE) for side in plan.sides]


def single(plan: Plan) -> Iterator[list[Case]]:
    """Enqueues one at a time, each waited for, by many callers in one process."""
    yield [
        Case(
            "single",
            "",
            side.name,
            side.callers,
            partial(_single, plan, side),
            RATE,
        )
        for side in plan.sides
    ]


def drained(server: Server, side: Side, folder: Path, jobs: int) -> float:
    """Jobs per second between the first look that sees one executed and the look that sees all."""
    with worker(side, server, folder) as running:
        start = running.wait_until(1)
        before = running.executed()
        end = running.wait_until(jobs)
        return (jobs - before) / (end - start)


def _process(plan: Plan, side: Side, folder: Path) -> Figures:
    jobs = plan.processing(side)
    with plan.serve(folder) as server:
        set_up(side, server)
        enqueue(side, server, "fill", jobs=jobs)
        return {"rate": drained(server, side, folder, jobs)}


def _bulk(plan: Plan, side: Side, folder: Path) -> Figures:
    with plan.serve(folder) as server:
        set_up(side, server)
        return enqueue(side, server, "fill", jobs=plan.enqueues(side))


def _single(plan: Plan, side: Side, folder: Path) -> Figures:
    with plan.serve(folder) as server:
        set_up(side, server)
        return enqueue(side, server, "single", jobs=plan.enqueues(side), callers=CONCURRENCY)
