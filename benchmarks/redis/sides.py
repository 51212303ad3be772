"""Who is measured: how each side's worker is started, as its documentation says, and how much it is given."""

from dataclasses import replace
from typing import Final

from benchmarks.beside.side import Side
from benchmarks.cases import OURS
from benchmarks.spawn import ROOT

OUR_MODULE: Final = "benchmarks.beside.ours"
NODE: Final = "BullMQ on Node"

_HERE: Final = ROOT / ".venv-bench" / "bin"
_PEERS: Final = ROOT / ".venv-bench-redis" / "bin"
_ARQ: Final = ROOT / ".venv-bench-arq" / "bin"
_SAQ: Final = ROOT / ".venv-bench-saq" / "bin"
_IN: Final = "benchmarks.redis.peers"
_LOOP: Final = "a loop: it has no bulk call"
_WAVES: Final = "100 calls at a time: it has no bulk call"


PENSTOCK: Final = Side(
    OURS,
    _HERE,
    OUR_MODULE,
    ("penstock", "worker", f"{OUR_MODULE}:app", "--concurrency", "100", "--log-level", "warning"),
    "--concurrency 100",
    100_000,
    150_000,
    "enqueue_many",
)

PYTHON_PEERS: Final = (
    Side(
        "SAQ",
        _SAQ,
        f"{_IN}.saq",
        ("saq", f"{_IN}.saq.settings"),
        "concurrency 100",
        8_000,
        30_000,
        _WAVES,
        package="saq",
    ),
    Side(
        "Taskiq",
        _PEERS,
        f"{_IN}.taskiq",
        ("taskiq", "worker", f"{_IN}.taskiq:broker", "--workers", "1", "--log-level", "WARNING"),
        "stream broker, --workers 1, 100 tasks",
        12_000,
        12_000,
        _WAVES,
        package="taskiq-redis",
    ),
    Side(
        "BullMQ for Python",
        _PEERS,
        f"{_IN}.bullmq",
        ("python", "-m", f"{_IN}.bullmq"),
        "concurrency 100",
        6_000,
        20_000,
        "addBulk",
        package="bullmq",
    ),
    Side(
        "Dramatiq",
        _PEERS,
        f"{_IN}.dramatiq",
        ("dramatiq", f"{_IN}.dramatiq", "--processes", "1", "--threads", "100"),
        "-p 1 -t 100",
        15_000,
        15_000,
        _LOOP,
        "100 threads",
        package="dramatiq",
    ),
    Side(
        "Huey",
        _PEERS,
        f"{_IN}.huey",
        ("huey_consumer", f"{_IN}.huey.huey", "-w", "100", "-q"),
        "-w 100",
        12_000,
        20_000,
        "task.map, a loop",
        "100 threads",
        package="huey",
    ),
    Side(
        "RQ",
        _PEERS,
        f"{_IN}.rq",
        ("rq", "worker", "--quiet"),
        "a process per job",
        300,
        15_000,
        "enqueue_many",
        "100 threads",
        package="rq",
        url_variable="RQ_REDIS_URL",
    ),
    Side(
        "Celery",
        _PEERS,
        f"{_IN}.celery",
        ("celery", "-A", f"{_IN}.celery", "worker", "-P", "threads", "-c", "100", "-l", "warning"),
        "-P threads -c 100",
        4_000,
        6_000,
        _LOOP,
        "100 threads",
        package="celery",
    ),
    Side(
        "streaQ",
        _PEERS,
        f"{_IN}.streaq",
        ("streaq", "run", f"{_IN}.streaq:worker"),
        "concurrency 100",
        6_000,
        25_000,
        "enqueue_many",
        package="streaq",
    ),
    Side(
        "ARQ",
        _ARQ,
        f"{_IN}.arq",
        ("arq", f"{_IN}.arq.WorkerSettings", "--custom-log-dict", f"{_IN}.arq.QUIET"),
        "max_jobs 100",
        5_000,
        15_000,
        _WAVES,
        package="arq",
    ),
)

_BY_NAME: Final = {side.name: side for side in PYTHON_PEERS}


def _extra(side: Side, label: str, *worker: str) -> Side:
    return replace(side, label=label, worker=worker)


EXTRAS: Final = (
    _extra(
        replace(_BY_NAME["Taskiq"], processing=20_000),
        "as it comes: 2 processes, 100 tasks each",
        *("taskiq", "worker", f"{_IN}.taskiq:broker", "--log-level", "WARNING"),
    ),
    _extra(
        _BY_NAME["Dramatiq"],
        "as it comes: a process per core, 8 threads each",
        *("dramatiq", f"{_IN}.dramatiq"),
    ),
    _extra(_BY_NAME["Huey"], "-w 1", "huey_consumer", f"{_IN}.huey.huey", "-w", "1", "-q"),
    _extra(
        replace(_BY_NAME["Huey"], processing=20_000),
        "-w 2 -k process",
        *("huey_consumer", f"{_IN}.huey.huey", "-w", "2", "-k", "process", "-q"),
    ),
    _extra(
        replace(_BY_NAME["RQ"], processing=2_000),
        "SimpleWorker: no process per job",
        *("rq", "worker", "--quiet", "-w", "rq.worker.SimpleWorker"),
    ),
    _extra(
        _BY_NAME["Celery"],
        "as it comes: a process per core",
        *("celery", "-A", f"{_IN}.celery", "worker", "-l", "warning"),
    ),
)
"""Other ways to run the workers of some sides, measured for processing only."""
