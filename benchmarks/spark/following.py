"""Events from Redis into Parquet files as a stream, beside a plain reader of the log."""

import asyncio
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.cases import OURS, Case
from benchmarks.redis import server as servers
from benchmarks.spark.filling import QUEUE
from benchmarks.spark.meter import measured_session, timed
from benchmarks.spark.plan import Plan
from benchmarks.spawn import Figures, run
from penstock.core.job import QueueRef
from penstock.stores.open import open_store

READER: Final = "Plain reader"
_MODULE: Final = "benchmarks.spark.following"
_UNITS: Final = {"rate": "events/s", "cpu": "processor s per million events"}
_BATCHES: Final = 8
"""The stream takes the log in so many parts; the first one, which starts everything, is not measured."""
_PAGE: Final = 1_000


def following(plan: Plan) -> Iterator[list[Case]]:
    """The same events, into files and into nothing."""
    yield [
        Case("events", "", OURS, "stream to Parquet", partial(_side, "through_spark", plan), _UNITS),
        Case(
            "events", "", READER, "store.events, 1,000 at a time", partial(_side, "by_reader", plan), _UNITS
        ),
    ]


def _side(role: str, plan: Plan, folder: Path) -> Figures:
    with servers.running("valkey", folder / "server") as server:
        run("benchmarks.spark.filling", "fill", url=server.url, jobs=plan.events)
        return run(_MODULE, role, url=server.url, events=plan.events, folder=str(folder))


def through_spark(url: str, events: int, folder: str) -> Figures:
    """Two queries over the same log: the first warms up, of the second the batches after its first count."""
    spark = measured_session()

    def follow(name: str) -> tuple[int, float]:
        source = spark.readStream.format("penstock").options(
            url=url,
            table="events",
            queue=QUEUE,
            startingOffsets="earliest",
            maxEventsPerTrigger=events // _BATCHES,
        )
        query = (
            source.load()
            .writeStream.format("parquet")
            .option("checkpointLocation", f"{folder}/{name}-checkpoint")
            .option("path", f"{folder}/{name}")
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        steady = [each for each in query.recentProgress if each["numInputRows"]][1:]
        rows = sum(each["numInputRows"] for each in steady)
        return rows, sum(each["durationMs"]["triggerExecution"] for each in steady) / 1000

    follow("warm")
    found: list[tuple[int, float]] = []
    figures = timed(lambda: found.append(follow("measured")), events)
    written = spark.read.parquet(f"{folder}/measured").select("seq").distinct().count()
    if written != events:
        raise RuntimeError(f"{written} events were written, not {events}")
    rows, seconds = found[0]
    return {"rate": rows / seconds, "cpu": figures["cpu"]}


def by_reader(url: str, events: int, folder: str) -> Figures:
    """One process, page after page."""

    async def read() -> int:
        store = open_store(url)
        await store.open()
        cursor: str | int = 0
        count = 0
        while page := await store.events.read_events(QueueRef("default", QUEUE), cursor, _PAGE):
            count += len(page)
            cursor = page[-1].cursor
        await store.close()
        return count

    found = asyncio.run(read())
    if found != events:
        raise RuntimeError(f"{found} events were read, not {events}")
    return timed(lambda: asyncio.run(read()), events)
