"""How long a job waits for an idle worker in another process."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.cases import Case
from benchmarks.redis import server as servers
from benchmarks.redis.plan import Plan
from benchmarks.redis.running import enqueue, worker
from benchmarks.redis.sides import Side
from benchmarks.spawn import Figures
from benchmarks.waits import percentiles

WARM_UP: Final = 5
"""Jobs before those that count: the first finds a worker that still starts."""
_WAITS: Final = {"p50": "ms", "p99": "ms"}


def pickup(plan: Plan) -> Iterator[list[Case]]:
    """From before the enqueue in one process to the first line of the handler in another."""
    yield [
        Case(
            "pickup",
            "",
            side.name,
            side.label,
            partial(_pick_up, server=plan.server, side=side, samples=plan.samples, pause=plan.pause),
            _WAITS,
        )
        for side in plan.sides
    ]


def _pick_up(folder: Path, *, server: str, side: Side, samples: int, pause: float) -> Figures:
    with servers.running(server, folder) as running, worker(side, running, folder) as idle:
        enqueue(side, running, "send", samples=WARM_UP, pause=pause)
        idle.wait_for_waits(WARM_UP)
        enqueue(side, running, "send", samples=samples, pause=pause)
        return percentiles(idle.wait_for_waits(WARM_UP + samples)[WARM_UP:])
