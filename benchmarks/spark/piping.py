"""The event log of each store into bronze and silver, end to end, as a user sees it: cold, and warm."""

import asyncio
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

from benchmarks.beside.roles import CHUNK
from benchmarks.cases import OURS, Case
from benchmarks.spark.filling import QUEUE
from benchmarks.spark.heads import STORES, store_url
from benchmarks.spark.meter import measured_session, timed
from benchmarks.spark.plan import Plan
from benchmarks.spawn import Figures, run
from penstock.core import decide
from penstock.core.ids import IdMaker
from penstock.core.job import NewJob, QueueRef
from penstock.spark import lake
from penstock.spark.pipeline import Pipeline
from penstock.stores.open import open_store

_MODULE: Final = "benchmarks.spark.piping"
_UNITS: Final = {
    "rate": "events/s warm",
    "cpu": "processor s per million events, warm",
    "cold": "events/s cold, with the start of Spark",
    "cold_cpu": "processor s per million events, cold",
}
_CLAIM: Final[dict[str, Any]] = {"worker": "host-1-4711", "lease_ms": 600_000}
_WARM_RUNS: Final = 2


def piping(plan: Plan) -> Iterator[list[Case]]:
    """Each store, with jobs that were enqueued, claimed and completed."""
    yield [Case("lake", "", OURS, store, partial(_side, store, plan.piped), _UNITS) for store in STORES]


def _side(store: str, events: int, folder: Path) -> Figures:
    with store_url(store, folder) as url:
        run(_MODULE, "live", url=url, jobs=events // 3)
        return run(_MODULE, "pipe", url=url, events=events // 3 * 3, folder=str(folder))


def live(url: str, jobs: int) -> Figures:
    """Jobs that live their lives, in the store alone."""

    async def whole() -> None:
        queue, store = QueueRef("default", QUEUE), open_store(url)
        await store.open()
        number = (await store.queues.open_queue(queue)).number
        made = iter(range(1, jobs + 1))
        ids = IdMaker(lambda: time.time_ns() // 1_000_000, lambda bits: next(made) % (1 << bits))
        for first in range(0, jobs, CHUNK):
            names = [ids.make(number) for _ in range(min(CHUNK, jobs - first))]
            new = [NewJob(id=each, nonce=each, task="noop", payload=b"{}") for each in names]
            await store.moves.enqueue(queue, new)
            # A store may give out fewer at once.
            while claimed := (await store.moves.claim(queue, limit=CHUNK, **_CLAIM)).jobs:
                endings = [decide.settle(job, decide.Returned(b"1"), lambda low, _: low) for job in claimed]
                await store.moves.settle(queue, endings)
        await store.close()

    asyncio.run(whole())
    return {}


def pipe(url: str, events: int, folder: str) -> Figures:
    """The whole log into a new lake, several times in one session; the first time is cold."""

    def once(name: str) -> None:
        spark = measured_session()
        pipeline = Pipeline(spark, f"{folder}/{name}", {"url": url, "readerName": "none"})
        pipeline.start()
        while not pipeline.wait(1):
            pass
        if pipeline.done.events != events:
            raise RuntimeError(f"{pipeline.done.events} events were read, not {events}")

    cold = timed(lambda: once("cold"), events)
    for number in range(_WARM_RUNS):
        once(f"warm-{number}")
    warm = timed(lambda: once("measured"), events)
    rows = {
        table.shape.name: sum(file.rows for file in table.files())
        for table in lake.open_lake(f"{folder}/measured").tables
    }
    if rows != {"events": events, "attempts": events // 3, "jobs": events // 3}:
        raise RuntimeError(f"the tables have {rows}")
    return warm | {"cold": cold["rate"], "cold_cpu": cold["cpu"]}
