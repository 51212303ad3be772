"""How soon a running handler in another process hears that its job is to be cancelled."""

import asyncio
import random
import secrets
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.beside.running import worker
from benchmarks.beside.side import Plan
from benchmarks.cases import OURS, Case
from benchmarks.results import Row, Verdict, first
from benchmarks.spawn import Figures, run
from benchmarks.waits import percentiles
from penstock.app.app import DEFAULT_QUEUE
from penstock.core.job import DEFAULT_TENANT, NewJob, QueueRef
from penstock.core.states import State
from penstock.stores.open import open_store
from penstock.stores.protocol import Store

WARM_UP: Final = 3
"""Cancels before those that count: the first finds a worker that still starts."""
MOST_MS: Final = 100
QUEUE: Final = QueueRef(DEFAULT_TENANT, DEFAULT_QUEUE)
LOOK: Final = 0.002
LONGEST: Final = 60.0
"""Seconds after which a handler that hears nothing counts as stuck."""


def cancel(plan: Plan) -> Iterator[list[Case]]:
    """From before the call in one process to the `CancelledError` of the handler in another."""
    yield [Case("cancel", "", OURS, "lease of 30 s", partial(_cancel, plan), {"p50": "ms", "p99": "ms"})]


def verdicts(rows: Sequence[Row]) -> list[Verdict]:
    """What the section is to reach."""
    found = first(rows, "cancel", OURS, "p99")
    if found is None or not found.values:
        return []
    shares = [value / MOST_MS for value in found.values]
    goal = f"a running handler hears of its cancel within {MOST_MS} ms (p99)"
    return [Verdict("", goal, f"{MOST_MS} ms", shares, max(shares) <= 1)]


def _cancel(plan: Plan, folder: Path) -> Figures:
    with plan.serve(folder) as server, worker(plan.sides[0], server, folder):
        return run(
            "benchmarks.beside.cancelling",
            "cancels",
            url=server.url,
            marks=str(folder / "marks"),
            samples=plan.samples,
            pause=plan.pause,
        )


def cancels(url: str, marks: str, samples: int, pause: float) -> Figures:
    """Milliseconds until handlers heard, one job after the other."""
    waits = asyncio.run(_measured(url, Path(marks), WARM_UP + samples, pause))
    return percentiles(waits[WARM_UP:])


async def _measured(url: str, marks: Path, samples: int, pause: float) -> list[float]:
    store = open_store(url)
    await store.open()
    try:
        return [await _timed(store, marks, number, pause) for number in range(samples)]
    finally:
        await store.close()


async def _timed(store: Store, marks: Path, number: int, pause: float) -> float:
    job = NewJob(id=secrets.token_hex(16), nonce=secrets.token_hex(8), task="lasting", payload=b"{}")
    await store.moves.enqueue(QUEUE, [job])
    end = time.monotonic() + LONGEST
    while (found := (await store.reads.get(QUEUE, [job.id]))[0]) is None or found.state is not State.ACTIVE:
        if time.monotonic() > end:
            raise RuntimeError("the worker claims nothing")
        await asyncio.sleep(LOOK)
    await asyncio.sleep(pause * random.uniform(0.5, 1.5))
    sent = time.monotonic_ns()
    await store.moves.cancel(QUEUE, [job.id])
    while len(lines := _lines(marks)) <= number:
        if time.monotonic() > end:
            raise RuntimeError("the handler was not cancelled")
        await asyncio.sleep(LOOK)
    return (int(lines[number]) - sent) / 1e6


def _lines(marks: Path) -> list[str]:
    return marks.read_text().split() if marks.exists() else []
