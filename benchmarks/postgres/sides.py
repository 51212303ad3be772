"""Who is measured: how each side's worker is started, as its documentation says, and how much it is given."""

from dataclasses import replace
from typing import Final

from benchmarks.beside.side import Side
from benchmarks.cases import OURS
from benchmarks.spawn import ROOT

PGQUEUER: Final = "PgQueuer"
PROCRASTINATE: Final = "Procrastinate"

_HERE: Final = ROOT / ".venv-bench" / "bin"
_PEERS: Final = ROOT / ".venv-bench-postgres" / "bin"
_IN: Final = "benchmarks.postgres.peers"
_OURS: Final = "benchmarks.beside.ours"
_PGQ: Final = ("pgq", "run", f"{_IN}.pgqueuer:worker")

PENSTOCK: Final = Side(
    OURS,
    _HERE,
    _OURS,
    ("penstock", "worker", f"{_OURS}:app", "--concurrency", "100", "--log-level", "warning"),
    "--concurrency 100",
    60_000,
    100_000,
    "enqueue_many",
)

PEERS: Final = (
    Side(
        PGQUEUER,
        _PEERS,
        f"{_IN}.pgqueuer",
        (*_PGQ, "--batch-size", "100", "--max-concurrent-tasks", "200"),
        "--batch-size 100, a pool",
        40_000,
        100_000,
        "enqueue with lists",
        package="pgqueuer",
        setup=("pgq", "install"),
        url_variable="PGDSN",
    ),
    Side(
        PROCRASTINATE,
        _PEERS,
        f"{_IN}.procrastinate",
        ("procrastinate", "--app", f"{_IN}.procrastinate.app", "worker", "--concurrency", "100"),
        "--concurrency 100",
        2_500,
        50_000,
        "batch_defer_async",
        package="procrastinate",
        setup=("procrastinate", "--app", f"{_IN}.procrastinate.app", "schema", "--apply"),
    ),
)

EXTRAS: Final = (
    replace(PEERS[0], worker=_PGQ, label="as it comes: --batch-size 10, a pool"),
    replace(
        PEERS[1],
        worker=(*PEERS[1].worker, "--delete-jobs", "successful"),
        label="--concurrency 100 --delete-jobs successful",
    ),
)
"""Other ways to run the peers' workers, measured for processing only."""
