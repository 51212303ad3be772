"""What keys and limits cost: beside the same work without them, by the number of keys, by what is delayed."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.cases import OURS, Case
from benchmarks.spawn import Figures, run
from benchmarks.sqlite.plan import CONCURRENCY, Plan

MODULE: Final = "benchmarks.sqlite.keyed_store"
KEYS: Final = 1_000
GLOBAL: Final = "global"
KEYED: Final = f"keyed, {KEYS:,} keys"
FAR_LIMITS: Final = "global, limits far off"
KINDS: Final = {GLOBAL: "plain", KEYED: "keyed", FAR_LIMITS: "limited"}
_RATE: Final = {"rate": "jobs/s"}
_CLAIM: Final = {"claim_ms": "ms per claim of 100"}
_PROMOTE: Final = {"promote_us": "µs per promoted job"}


def keyed(plan: Plan) -> Iterator[list[Case]]:
    """The same no-op jobs by one worker with and without keys and limits; then costs on the store itself."""
    jobs = plan.amounts[OURS, "server"].processing
    yield [
        Case("keyed", "server", OURS, label, partial(_work, kind=kind, jobs=jobs), _RATE)
        for label, kind in KINDS.items()
    ]
    yield [
        Case(
            "keyed", "server", OURS, f"{keys:,} keys", partial(_claim, keys=keys, claims=plan.claims), _CLAIM
        )
        for keys in plan.keys
    ]
    yield [
        Case(
            "keyed",
            "server",
            OURS,
            f"{delayed:,} delayed",
            partial(_promote, delayed=delayed, times=plan.claims),
            _PROMOTE,
        )
        for delayed in plan.delayed
    ]


def _work(folder: Path, *, kind: str, jobs: int) -> Figures:
    path = str(folder / "jobs.db")
    run(MODULE, "fill", path=path, kind=kind, jobs=jobs, keys=KEYS)
    return run(MODULE, "work", path=path, jobs=jobs, concurrency=CONCURRENCY)


def _claim(folder: Path, *, keys: int, claims: int) -> Figures:
    path = str(folder / "jobs.db")
    # The same number of jobs in both, so that only the number of keys differs.
    run(MODULE, "fill", path=path, kind="keyed", jobs=100_000, keys=keys)
    # The first process after the filling pays for moving the log into the file; the second is measured.
    run(MODULE, "claim", path=path, claims=2)
    return run(MODULE, "claim", path=path, claims=claims)


def _promote(folder: Path, *, delayed: int, times: int) -> Figures:
    path = str(folder / "jobs.db")
    run(MODULE, "fill", path=path, kind="delayed", jobs=delayed, keys=1)
    run(MODULE, "promote", path=path, times=2)
    return run(MODULE, "promote", path=path, times=times)
