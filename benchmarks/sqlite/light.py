"""The cost of a claim by the depth of the queue, and the time to import."""

import statistics
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.cases import OURS, Case
from benchmarks.spawn import Figures, run
from benchmarks.sqlite.plan import OURS_MODULE, PEER, Plan

STORE_MODULE: Final = "benchmarks.sqlite.store"
_CLAIM: Final = {"ms": "ms per claim of 100", "fill": "s to fill"}
_IMPORT: Final = {"ms": "ms"}
_STATEMENTS: Final = (
    (OURS, "import penstock"),
    (PEER, "import huey"),
    (OURS, "from penstock import Penstock"),
    (PEER, "from huey import SqliteHuey"),
)
_TIMED: Final = """
import sys, time
sys.modules["redis"] = None
start = time.perf_counter()
{statement}
print((time.perf_counter() - start) * 1000)
"""


def claim(plan: Plan) -> Iterator[list[Case]]:
    """Batches of 100 from few and from many pending jobs, on the store itself."""
    yield [
        Case(
            "claim",
            "server",
            OURS,
            f"{depth:,} pending",
            partial(_claim, depth=depth, claims=plan.claims),
            _CLAIM,
        )
        for depth in plan.depths
    ]


def imports(plan: Plan) -> Iterator[list[Case]]:
    """Fresh interpreters, without a Redis client: neither needs one for SQLite."""
    yield [
        Case(
            "import", "", side, statement, partial(_import, statement=statement, times=plan.imports), _IMPORT
        )
        for side, statement in _STATEMENTS
    ]


def _claim(folder: Path, *, depth: int, claims: int) -> Figures:
    path = str(folder / "jobs.db")
    filled = run(OURS_MODULE, "fill", path=path, jobs=depth)
    # The first process after the filling pays for moving the log into the file; the second is measured.
    run(STORE_MODULE, "claim", path=path, durability="server", claims=2)
    found = run(STORE_MODULE, "claim", path=path, durability="server", claims=claims)
    return {"ms": found["ms"], "fill": filled["seconds"]}


def _import(folder: Path, *, statement: str, times: int) -> Figures:
    command = [sys.executable, "-c", _TIMED.format(statement=statement)]
    took = [float(subprocess.run(command, capture_output=True, check=True).stdout) for _ in range(times)]
    return {"ms": statistics.median(took)}
