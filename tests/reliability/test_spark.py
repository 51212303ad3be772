"""Spark on every store while drivers, executors and tasks die: a job for each row, each event once."""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pytest
from pyspark.sql import SparkSession

from penstock.core.events import Event
from penstock.core.history import Checker
from penstock.core.states import LIVE, State
from penstock.spark import lake, session
from penstock.spark.lake.schemas import SHAPES
from penstock.stores.protocol import Store
from penstock.stores.values import Query
from tests.reliability.grounds import GROUNDS, Ground
from tests.reliability.spark_driver import MASTER, ONLY_READING, QUICK, SPECULATION, driving, finish
from tests.reliability.spark_traffic import FILE_ROWS, QUEUES, WRITTEN, Traffic
from tests.reliability.stage import events_of
from tests.spark.conftest import preloading
from tests.spark.lake_kit import expected_attempts, expected_jobs, seen, wanted
from tests.spark.test_lake_tables import counts_of

pytestmark = pytest.mark.torture

EXPECTED = {"attempts": expected_attempts, "jobs": expected_jobs}
CLUSTER = "local-cluster[2,1,1024]"
"""Two executors of one core each, in processes of their own."""


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with preloading():
        made = session("penstock-torture", MASTER, **QUICK)
    yield made
    made.stop()


@pytest.fixture
def grounds(tmp_path: Path) -> Iterator[dict[str, Ground]]:
    """Every store at once: to start Spark takes longer than anything else here."""
    with ExitStack() as stack:
        folders = {name: tmp_path / "stores" / name for name in GROUNDS}
        for folder in folders.values():
            folder.mkdir(parents=True)
        yield {name: stack.enter_context(GROUNDS[name](folder)) for name, folder in folders.items()}


def test_drivers_that_are_killed_lose_and_double_nothing(
    grounds: dict[str, Ground], tmp_path: Path, chance: random.Random, scale: float, spark: SparkSession
) -> None:
    """10 SIGKILLs while events and rows of every store flow; every task fails once, too."""
    kills = max(1, round(10 * scale))
    urls = {name: ground.url for name, ground in grounds.items()}
    traffic = Traffic(grounds, tmp_path / "files", chance.randrange(2**32))
    with traffic.flowing():
        for _ in range(kills):
            with driving(urls, tmp_path) as driver:
                driver.wait_for_tries()
                if chance.random() < 0.3:
                    driver.wait_for_batches()
                time.sleep(chance.uniform(0, 2))
    print(f"{kills} drivers killed", flush=True)

    _check(spark, grounds, tmp_path, traffic.files)


def test_executors_and_workers_that_are_killed_lose_and_double_nothing(
    grounds: dict[str, Ground], tmp_path: Path, chance: random.Random, scale: float, spark: SparkSession
) -> None:
    """While they write, and slow tasks run twice; the driver goes on without them."""
    kills = max(1, round(4 * scale))
    urls = {name: ground.url for name, ground in grounds.items()}
    traffic = Traffic(grounds, tmp_path / "files", chance.randrange(2**32))
    with traffic.flowing(), driving(urls, tmp_path, CLUSTER, SPECULATION) as driver:
        driver.wait_for_batches()
        for number in range(kills):
            driver.wait_for_tries()
            time.sleep(chance.uniform(0, 1))
            driver.kill_part(chance, "worker" if number % 2 else "executor")
        driver.wait_for_batches()
    print(f"{kills} executors and workers killed", flush=True)

    _check(spark, grounds, tmp_path, traffic.files)


def test_two_drivers_at_once_lose_and_double_nothing(
    grounds: dict[str, Ground], tmp_path: Path, chance: random.Random, scale: float, spark: SparkSession
) -> None:
    """On the same folders: of each batch one commits, and the other ends and is started again."""
    rounds = max(1, round(3 * scale))
    urls = {name: ground.url for name, ground in grounds.items()}
    traffic = Traffic(grounds, tmp_path / "files", chance.randrange(2**32))
    with traffic.flowing():
        for _ in range(rounds):
            # The rows are written by one: Spark itself keeps a second query off a checkpoint.
            with driving(urls, tmp_path), driving(urls, tmp_path, MASTER, ONLY_READING) as second:
                second.wait_for_tries()
                time.sleep(chance.uniform(1, 4))
    print(f"{rounds} times two drivers", flush=True)

    _check(spark, grounds, tmp_path, traffic.files)


def _check(spark: SparkSession, grounds: dict[str, Ground], folder: Path, files: int) -> None:
    """Finish what was left, and hold jobs and tables against the rows and the log."""
    finish(spark, {name: ground.url for name, ground in grounds.items()}, folder)
    for name, ground in grounds.items():
        events = asyncio.run(_checked_log(ground, files))
        batches = lake.open_lake(str(folder / name)).bronze.batch + 1
        print(f"{name}: {files} files of rows, {len(events)} events, {batches} batches", flush=True)
        _check_tables(spark, folder / name, events)


async def _checked_log(ground: Ground, files: int) -> list[Event]:
    """The log of the store; it is sound, and so is the store, with one job for each row."""
    async with ground.open() as store:
        checker = Checker(in_order=store.numbers_in_order)
        events = [event for queue in (*QUEUES, WRITTEN) async for event in events_of(store, queue)]
        for event in events:
            checker.feed(event)
        live: dict[tuple[str, str, str], State] = {}
        for queue in (*QUEUES, WRITTEN):
            jobs = (await store.reads.find(queue, Query(states=LIVE, limit=1_000_000))).jobs
            live |= {(job.tenant, job.queue, job.id): job.state for job in jobs}
            assert await store.health.check(queue) == []
        assert [str(breach) for breach in checker.finish(live).breaches[:10]] == []
        assert await _rows(store) == Counter((file, n) for file in range(files) for n in range(FILE_ROWS))
    return events


async def _rows(store: Store) -> Counter[tuple[int, int]]:
    """The rows that jobs were made of, and how many of each."""
    jobs = (await store.reads.find(WRITTEN, Query(limit=1_000_000))).jobs
    payloads = [msgspec.json.decode(job.payload) for job in jobs]
    return Counter((each["file"], each["n"]) for each in payloads)


def _check_tables(spark: SparkSession, folder: Path, events: Sequence[Event]) -> None:
    columns = ("queue", "seq", "job", "version", "move", "drive", "fence")
    for _ in range(2):
        bronze = lake.read(spark, str(folder), "events").select(*columns).collect()
        assert Counter(map(tuple, bronze)) == Counter(
            tuple(getattr(event, name) for name in columns) for event in events
        )
        for name, fold in EXPECTED.items():
            found = lake.read(spark, str(folder), name).select(*SHAPES[name].file_schema.names)
            assert seen(found) == wanted(fold(events), found.columns)
        counted = counts_of(folder)
        assert len({str(each) for each in counted.values()}) == 1, counted
        # What killed tries left is removed by it, and nothing else.
        lake.optimize(str(folder))
        lake.vacuum(str(folder), keep_hours=0)
