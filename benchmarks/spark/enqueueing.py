"""Rows become jobs on Redis, beside one plain client process; and the same rows again."""

import asyncio
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

from benchmarks.beside.roles import CHUNK
from benchmarks.cases import OURS, Case
from benchmarks.redis import server as servers
from benchmarks.spark.filling import QUEUE
from benchmarks.spark.meter import WARM, measured_session, timed
from benchmarks.spark.plan import Plan
from benchmarks.spawn import Figures, run
from penstock import Penstock
from penstock.core.job import QueueRef

CLIENT: Final = "Plain client"
KEYED: Final = "enqueue_many, a key per job"
_MODULE: Final = "benchmarks.spark.enqueueing"
_UNITS: Final = {"rate": "jobs/s", "cpu": "processor s per million jobs"}


def enqueueing(plan: Plan) -> Iterator[list[Case]]:
    """A DataFrame written once and once more, and `enqueue_many` in one process."""
    units = _UNITS | {"again": "jobs/s written again", "cpu_again": "processor s per million jobs again"}
    yield [
        Case("enqueue", "", OURS, "two tasks, a key per row", partial(_side, "through_spark", plan), units),
        Case("enqueue", "", CLIENT, KEYED, partial(_side, "by_client", plan, keyed=True), _UNITS),
        Case("enqueue", "", CLIENT, "enqueue_many, no keys", partial(_side, "by_client", plan), _UNITS),
    ]


def _side(role: str, plan: Plan, folder: Path, **more: Any) -> Figures:
    with servers.running("valkey", folder) as server:
        # The queue is there before anything is written to it.
        run("benchmarks.spark.filling", "fill", url=server.url, jobs=WARM)
        return run(_MODULE, role, url=server.url, jobs=plan.enqueues, **more)


def through_spark(url: str, jobs: int) -> Figures:
    """A write, and the same write again, of which nothing is left to do."""
    spark = measured_session()

    def write(count: int, write_id: str) -> None:
        rows = spark.range(0, count, numPartitions=2).withColumnRenamed("id", "n")
        asked = {"url": url, "task": "noop", "queue": QUEUE, "writeId": write_id, "keyColumns": "n"}
        rows.write.format("penstock").mode("append").options(**asked).save()

    write(WARM, "warm")
    first = timed(lambda: write(jobs, "bench"), jobs)
    again = timed(lambda: write(jobs, "bench"), jobs)
    _check(url, 2 * WARM + jobs)
    return first | {"again": again["rate"], "cpu_again": again["cpu"]}


def by_client(url: str, jobs: int, keyed: bool = False) -> Figures:
    """As a program without Spark would; with keys it can be run again, as the write of a DataFrame can."""

    async def fill(count: int, name: str) -> None:
        app = Penstock(url)

        @app.queue(QUEUE).task(name="noop")
        async def noop(n: int) -> None:
            raise NotImplementedError

        async with app:
            for first in range(0, count, CHUNK):
                numbers = range(first, min(count, first + CHUNK))
                if keyed:
                    await noop.enqueue_many(
                        [noop.options(idempotency_key=f"{name}-{n}").call(n) for n in numbers]
                    )
                else:
                    await noop.enqueue_many([(n,) for n in numbers])

    asyncio.run(fill(WARM, "warm"))
    found = timed(lambda: asyncio.run(fill(jobs, "bench")), jobs)
    _check(url, 2 * WARM + jobs)
    return found


def _check(url: str, jobs: int) -> None:
    """All are there, and each once."""

    async def count() -> int:
        async with Penstock(url) as app:
            return sum((await app.store.reads.counts(QueueRef("default", QUEUE))).values())

    found = asyncio.run(count())
    if found != jobs:
        raise RuntimeError(f"{found} jobs are there, not {jobs}")
