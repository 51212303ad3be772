"""Processing, single enqueues and bulk enqueues, in jobs per second."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

from benchmarks.cases import OURS, Case
from benchmarks.spawn import Figures, run
from benchmarks.sqlite.plan import CALLERS, CONCURRENCY, DURABILITIES, OURS_MODULE, PEER, PEER_MODULE, Plan

PEER_WORKERS: Final = (1, 8, 50, CONCURRENCY)
_RATE: Final = {"rate": "jobs/s"}


def processing(plan: Plan) -> Iterator[list[Case]]:
    """Jobs enqueued beforehand, worked off by one worker process."""
    for durability in DURABILITIES:
        ours = partial(
            _work, OURS_MODULE, durability=durability, jobs=plan.amounts[OURS, durability].processing
        )
        theirs = partial(
            _work, PEER_MODULE, durability=durability, jobs=plan.amounts[PEER, durability].processing
        )
        kinds = {
            f"async handlers, {CONCURRENCY} at once": {"is_sync": False, "is_uvloop": False},
            f"async handlers, {CONCURRENCY} at once, uvloop": {"is_sync": False, "is_uvloop": True},
            f"sync handlers in threads, {CONCURRENCY} at once": {"is_sync": True, "is_uvloop": False},
        }
        yield _interleaved(
            [
                Case(
                    "processing",
                    durability,
                    OURS,
                    label,
                    partial(ours, concurrency=CONCURRENCY, **kind),
                    _RATE,
                )
                for label, kind in kinds.items()
            ],
            [
                Case("processing", durability, PEER, f"-w {workers}", partial(theirs, workers=workers), _RATE)
                for workers in PEER_WORKERS
            ],
        )


def single(plan: Plan) -> Iterator[list[Case]]:
    """Enqueues one at a time, each waited for, by many callers in one process."""
    for durability in DURABILITIES:
        ours = partial(_alone, OURS_MODULE, "single", durability=durability, callers=CALLERS)
        ours = partial(ours, jobs=plan.amounts[OURS, durability].single)
        theirs = partial(_alone, PEER_MODULE, "single", durability=durability)
        theirs = partial(theirs, jobs=plan.amounts[PEER, durability].single)
        yield _interleaved(
            [
                Case(
                    "single", durability, OURS, f"{CALLERS} coroutines", partial(ours, is_uvloop=False), _RATE
                ),
                Case(
                    "single",
                    durability,
                    OURS,
                    f"{CALLERS} coroutines, uvloop",
                    partial(ours, is_uvloop=True),
                    _RATE,
                ),
            ],
            [
                Case(
                    "single", durability, PEER, f"{CALLERS} threads", partial(theirs, callers=CALLERS), _RATE
                ),
                Case("single", durability, PEER, "1 thread", partial(theirs, callers=1), _RATE),
            ],
        )


def bulk(plan: Plan) -> Iterator[list[Case]]:
    """Many enqueues in one call."""
    for durability in DURABILITIES:
        ours = partial(_alone, OURS_MODULE, durability=durability, jobs=plan.amounts[OURS, durability].bulk)
        theirs = partial(_alone, PEER_MODULE, durability=durability)
        few = plan.amounts[PEER, durability].bulk
        many = plan.amounts[OURS, durability].bulk
        yield _interleaved(
            [Case("bulk", durability, OURS, "enqueue_many", partial(ours, "bulk"), _RATE)],
            [
                Case("bulk", durability, PEER, "task.map", partial(theirs, "bulk", jobs=few), _RATE),
                Case(
                    "bulk",
                    durability,
                    PEER,
                    "by hand, past its interface",
                    partial(theirs, "bulk_by_hand", jobs=many),
                    _RATE,
                ),
            ],
        )


def _work(module: str, folder: Path, *, jobs: int, **keywords: Any) -> Figures:
    path = str(folder / "jobs.db")
    run(module, "fill", path=path, jobs=jobs)
    return run(module, "work", path=path, jobs=jobs, **keywords)


def _alone(module: str, role: str, folder: Path, **keywords: Any) -> Figures:
    return run(module, role, path=str(folder / "jobs.db"), **keywords)


def _interleaved(ours: list[Case], theirs: list[Case]) -> list[Case]:
    """Ours, theirs, ours, theirs, and then what is left over of the longer list."""
    pairs = min(len(ours), len(theirs))
    mixed = [case for pair in zip(ours, theirs, strict=False) for case in pair]
    return mixed + ours[pairs:] + theirs[pairs:]
