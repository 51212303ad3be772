"""Who is measured: Penstock's tiers, and the peers that run jobs in processes, as they come."""

from dataclasses import replace
from typing import Final

from benchmarks.beside.side import Side
from benchmarks.cases import OURS
from benchmarks.redis.sides import EXTRAS, PENSTOCK, PYTHON_PEERS

ASYNC: Final = "inline: coroutines, --concurrency 100"
THREADS: Final = "inline: 100 threads"
KEPT: Final = "process: a process per core"
FORKED: Final = "process, one at a time, a fork per job"
PROGRAM: Final = "subprocess, one at a time: sh -c printf"
PREFORK: Final = "as it comes: a process per core"


def _tier(label: str, tier: str, slots: int, jobs: int) -> Side:
    command = ("penstock", "worker", "benchmarks.execution.ours:app", "--log-level", "warning")
    return Side(
        OURS,
        PENSTOCK.programs,
        f"benchmarks.execution.{tier}",
        (*command, "--queues", f"{tier}={slots}"),
        label,
        jobs,
        0,
        "",
    )


_CELERY: Final = next(side for side in EXTRAS if side.name == "Celery")
_RQ: Final = next(side for side in PYTHON_PEERS if side.name == "RQ")

SIDES: Final = (
    replace(PENSTOCK, label=ASYNC),
    _tier(THREADS, "inline", 100, 30_000),
    _tier(KEPT, "kept", 2, 15_000),
    replace(_CELERY, label=PREFORK),
    _tier(FORKED, "forked", 1, 600),
    _tier(PROGRAM, "program", 1, 1_000),
    replace(_RQ, label="one at a time, a fork per job"),
)
