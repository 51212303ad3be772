"""How long a job waits for an idle worker in another process, and what that worker costs while idle."""

import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from benchmarks.cases import OURS, Case
from benchmarks.spawn import Figures, run, service
from benchmarks.sqlite.plan import CONCURRENCY, DURABILITIES, OURS_MODULE, PEER, PEER_MODULE, Plan
from benchmarks.waits import percentiles

_WAITS: Final = {"p50": "ms", "p99": "ms"}
_COST: Final = {"rss": "MiB", "cpu": "% of a core"}
_POLLING: Final = {"default": "default polling (0.1 s, growing)", "fast": "-d 0.01 -m 0.01 -b 1"}


def pickup(plan: Plan) -> Iterator[list[Case]]:
    """From before the enqueue in one process to the start of the handler in another."""
    for durability in DURABILITIES:
        measure = partial(_pick_up, durability=durability, samples=plan.samples, pause=plan.pause)
        ours = partial(measure, OURS_MODULE, concurrency=CONCURRENCY)
        yield [
            Case("pickup", durability, OURS, "defaults", ours, _WAITS),
            *(
                Case(
                    "pickup",
                    durability,
                    PEER,
                    label,
                    partial(measure, PEER_MODULE, polling=polling, workers=1),
                    _WAITS,
                )
                for polling, label in _POLLING.items()
            ),
        ]


def idle(plan: Plan) -> Iterator[list[Case]]:
    """Memory and processor time of a worker that has nothing to do."""
    rest = partial(_rest, seconds=plan.idle_seconds, durability="server")
    ours = partial(rest, OURS_MODULE, concurrency=CONCURRENCY)
    yield [
        Case("idle", "server", OURS, f"{CONCURRENCY} at once", ours, _COST),
        *(
            Case(
                "idle",
                "server",
                PEER,
                f"-w {workers}, {label}",
                partial(rest, PEER_MODULE, polling=polling, workers=workers),
                _COST,
            )
            for workers, polling, label in (
                (1, "default", "default polling"),
                (1, "fast", "-d 0.01 -m 0.01 -b 1"),
                (CONCURRENCY, "default", "default polling"),
            )
        ),
    ]


def _pick_up(
    module: str, folder: Path, *, durability: str, samples: int, pause: float, **keywords: Any
) -> Figures:
    path = str(folder / "jobs.db")
    with service(module, "consume", path=path, durability=durability, **keywords) as worker:
        run(module, "send", path=path, durability=durability, samples=samples, pause=pause)
        waits: Sequence[float] = worker.stop()["waits"]  # type: ignore[assignment]
    if len(waits) != samples:
        raise RuntimeError(f"{len(waits)} of {samples} jobs were picked up")
    return percentiles(waits)


def _rest(module: str, folder: Path, *, seconds: float, **keywords: Any) -> Figures:
    with service(module, "consume", path=str(folder / "jobs.db"), **keywords) as worker:
        time.sleep(1 + seconds)
        found = worker.stop()
    return {"rss": found["rss"], "cpu": found["cpu"]}
