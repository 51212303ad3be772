"""Jobs written from Spark while drivers, executors and tasks die: every row is one job, on every store."""

import asyncio
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from penstock.core.events import Event
from penstock.core.history import Checker
from penstock.core.job import QueueRef
from penstock.core.states import LIVE
from penstock.stores.protocol import Query
from tests.reliability.grounds import GROUNDS, Ground
from tests.reliability.spark_stage import running
from tests.reliability.stage import events_of

pytestmark = pytest.mark.torture

BATCH, STREAM = QueueRef("default", "batch"), QueueRef("default", "stream")
PARTITIONS, ROWS = 4, 400
"""Of each write."""
FILE_ROWS = 50
"""Of each file that the stream reads: one file is one micro-batch."""


@pytest.fixture
def grounds(tmp_path: Path) -> Iterator[dict[str, Ground]]:
    """Every store at once: starting Spark takes longer than all that is written."""
    with ExitStack() as stack:
        folders = {name: tmp_path / name for name in GROUNDS}
        for folder in folders.values():
            folder.mkdir()
        yield {name: stack.enter_context(GROUNDS[name](folder)) for name, folder in folders.items()}


def test_drivers_and_tasks_that_die_write_every_row_once(
    grounds: dict[str, Ground], tmp_path: Path, chance: random.Random, scale: float
) -> None:
    """10 SIGKILLs of a driver that writes to all stores, batches and a stream, every task failing once."""
    kills = max(1, round(10 * scale))
    writes = files = kills * 2
    given = _prepare(grounds, tmp_path, writes, files)
    for _ in range(kills):
        with running(write_all, tmp_path / "driver.log", **given) as driver:
            driver.wait_for(chance.choice(["writing", "wrote"]))
            time.sleep(chance.uniform(0, 3))
            assert driver.process.poll() is None, "nothing was left to kill"
    done = {name: _done(tmp_path / f"{name}.done") for name in grounds}
    print(f"{kills} drivers killed; of {writes} writes were done: {done}", flush=True)
    with running(write_all, tmp_path / "driver.log", **given) as driver:
        driver.finish()

    for name, ground in grounds.items():
        asyncio.run(_check(name, ground, writes, files))


def test_an_executor_that_is_killed_takes_no_row_with_it(
    grounds: dict[str, Ground], tmp_path: Path, chance: random.Random, scale: float
) -> None:
    """On a cluster of two executors, one of which is killed while it writes."""
    kills = max(1, round(2 * scale))
    writes = files = kills * 3
    given = _prepare(grounds, tmp_path, writes, files)
    with running(write_all, tmp_path / "driver.log", master="local-cluster[2,1,1024]", **given) as driver:
        driver.wait_for("writing")
        for _ in range(kills):
            time.sleep(chance.uniform(0, 2))
            os.kill(chance.choice(driver.executors()), signal.SIGKILL)
        driver.finish()

    for name, ground in grounds.items():
        asyncio.run(_check(name, ground, writes, files))


def write_all(
    spark: SparkSession, tell: Callable[[str], None], urls: dict[str, str], folder: str, writes: int
) -> None:
    """To each store: what the stream has left, and meanwhile the writes that were not done."""
    place = Path(folder)
    streams = [write_stream(spark, name, url, place) for name, url in urls.items()]
    tell("writing")
    for number in range(writes):
        for name, url in urls.items():
            if number >= _done(place / f"{name}.done"):
                write_batch(spark, number, url)
                with (place / f"{name}.done").open("a") as file:
                    file.write(f"{number}\n")
                tell("wrote")
    for stream in streams:
        stream.awaitTermination()


def write_batch(spark: SparkSession, number: int, url: str) -> None:
    """A write under an id of its own; one that may not have been done is done again."""
    rows = spark.range(0, ROWS, 1, PARTITIONS).selectExpr(f"{number} AS write", "id AS n")
    sink = rows.mapInArrow(stumbling, rows.schema).write.format("penstock").mode("append")
    sink.options(url=url, queue=BATCH.name, task="send", keyColumns="n", writeId=f"w{number}").save()


def write_stream(spark: SparkSession, name: str, url: str, folder: Path) -> StreamingQuery:
    """All files that the stream has not seen, one per micro-batch."""
    source = spark.readStream.schema("write INT, n INT").option("maxFilesPerTrigger", 1)
    rows = source.json(str(folder / "files")).repartition(2)
    sink = rows.mapInArrow(stumbling, rows.schema).writeStream.format("penstock")
    sink = sink.options(url=url, queue=STREAM.name, task="send", keyColumns="write,n")
    stream = sink.option("checkpointLocation", str(folder / f"{name}.checkpoint"))
    return stream.trigger(availableNow=True).start()


def stumbling(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows, slowly; the first try of every task fails half-way through them."""
    context = TaskContext.get()
    assert context is not None
    for batch in batches:
        half = batch.num_rows // 2
        yield batch.slice(0, half)
        time.sleep(0.02)
        if context.attemptNumber() == 0:
            raise RuntimeError("this task stumbles once")
        yield batch.slice(half)


def _prepare(grounds: dict[str, Ground], folder: Path, writes: int, files: int) -> dict[str, Any]:
    (folder / "files").mkdir()
    for number in range(files):
        rows = "".join(f'{{"write": {number}, "n": {n}}}\n' for n in range(FILE_ROWS))
        (folder / "files" / f"{number:05}.json").write_text(rows)
    for ground in grounds.values():
        asyncio.run(_open(ground))
    urls = {name: ground.url for name, ground in grounds.items()}
    return {"urls": urls, "folder": str(folder), "writes": writes}


async def _open(ground: Ground) -> None:
    async with ground.open() as store:
        for queue in (BATCH, STREAM):
            await store.open_queue(queue)


def _done(path: Path) -> int:
    return len(path.read_text().splitlines()) if path.exists() else 0


async def _check(name: str, ground: Ground, writes: int, files: int) -> None:
    """Every row is one job, the log agrees, and the store is sound."""
    async with ground.open() as store:
        for queue, expected in ((BATCH, (writes, ROWS)), (STREAM, (files, FILE_ROWS))):
            jobs = (await store.find(queue, Query(states=LIVE, limit=1_000_000))).jobs
            found = Counter(_row(job.payload) for job in jobs)
            wanted = Counter((write, n) for write in range(expected[0]) for n in range(expected[1]))

            assert found == wanted, f"{name}, {queue}: {(found - wanted, wanted - found)}"
            checker = Checker(in_order=store.numbers_in_order)
            events: list[Event] = [event async for event in events_of(store, queue)]
            for event in events:
                checker.feed(event)
            live = {(job.tenant, job.queue, job.id): job.state for job in jobs}
            assert [str(breach) for breach in checker.finish(live).breaches[:10]] == []
            assert len(events) == len(jobs)
            assert await store.check(queue) == []


def _row(payload: bytes) -> tuple[int, int]:
    row = msgspec.json.decode(payload)
    return row["write"], row["n"]
