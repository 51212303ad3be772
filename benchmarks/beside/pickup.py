"""How long a job waits for an idle worker in another process."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.beside.running import enqueue, set_up, worker
from benchmarks.beside.side import Plan, Side
from benchmarks.cases import Case
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
            partial(_pick_up, plan, side),
            _WAITS,
        )
        for side in plan.sides
    ]


def _pick_up(plan: Plan, side: Side, folder: Path) -> Figures:
    with plan.serve(folder) as server:
        set_up(side, server)
        with worker(side, server, folder) as idle:
            enqueue(side, server, "send", samples=WARM_UP, pause=plan.pause)
            idle.wait_for_waits(WARM_UP)
            enqueue(side, server, "send", samples=plan.samples, pause=plan.pause)
            return percentiles(idle.wait_for_waits(WARM_UP + plan.samples)[WARM_UP:])
