"""Tables filled by drivers, executors and tasks that die: every event once, and silver as from scratch."""

import asyncio
import os
import random
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

from penstock.core.events import Event
from penstock.spark import session, tables
from penstock.spark.pipeline import Pipeline
from penstock.spark.tables.silver import SHAPES
from tests.reliability.grounds import Ground
from tests.reliability.spark_drivers import QUEUES, Driver, Traffic
from tests.reliability.stage import events_of
from tests.spark.conftest import MASTER, SETTINGS
from tests.spark.tables_kit import expected_attempts, expected_jobs, seen, wanted

pytestmark = pytest.mark.torture

EXPECTED = {"attempts": expected_attempts, "jobs": expected_jobs}


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    made = session("penstock-torture", MASTER, **SETTINGS)
    yield made
    made.stop()


def test_a_driver_killed_at_random_loses_and_doubles_nothing(
    ground: Ground, tmp_path: Path, chance: random.Random, scale: float, spark: SparkSession
) -> None:
    out, kills = tmp_path / "tables", max(1, round(10 * scale))
    with Traffic(ground, chance.randrange(2**32)).flowing():
        for number in range(kills):
            with _driver(ground, out, tmp_path) as driver:
                # In turn: killed in its first batch, and after it.
                driver.wait_for_try()
                if number % 2 == 0:
                    driver.wait_for_batch()
                time.sleep(chance.uniform(0, 2))
    batches = len(tables.open_table(spark, str(out), "events").live())
    print(f"{kills} drivers killed, {batches} batches between", flush=True)
    assert batches, "no driver lived long enough: nothing was shown"

    _finish(spark, ground, out)

    _check(spark, ground, out)


def test_a_killed_executor_loses_and_doubles_nothing(
    ground: Ground, tmp_path: Path, chance: random.Random, scale: float, spark: SparkSession
) -> None:
    out, killed = tmp_path / "tables", 0
    with (
        Traffic(ground, chance.randrange(2**32)).flowing(),
        _driver(ground, out, tmp_path, master="local-cluster[2,1,1024]") as driver,
    ):
        for _ in range(max(1, round(2 * scale))):
            driver.wait_for_batch()
            time.sleep(chance.uniform(0, 1))
            os.kill(chance.choice(driver.executors()), signal.SIGKILL)
            killed += 1
        driver.wait_for_batch()
        driver.wait_for_batch()
        code = driver.stop()
    print(f"{killed} executors killed", flush=True)

    assert code == 0, (tmp_path / "driver.log").read_text()[-2_000:]
    _finish(spark, ground, out)
    _check(spark, ground, out)


def test_tasks_that_fail_once_lose_and_double_nothing(
    ground: Ground, tmp_path: Path, chance: random.Random, spark: SparkSession
) -> None:
    with Traffic(ground, chance.randrange(2**32)).flowing():
        time.sleep(3)

    _finish(spark, ground, tmp_path / "tables", Stumbling)

    _check(spark, ground, tmp_path / "tables")


class Stumbling(Pipeline):
    """Each task that writes events fails once, half-way."""

    def _write(self, rows: DataFrame, number: int) -> None:
        super()._write(rows.mapInArrow(_stumble, rows.schema), number)


def _stumble(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch
        context = TaskContext.get()
        assert context is not None
        if context.attemptNumber() == 0:
            raise RuntimeError("this task stumbles once")


@contextmanager
def _driver(ground: Ground, out: Path, folder: Path, master: str = "local[2]") -> Iterator[Driver]:
    driver = Driver(ground.url, out, master=master, log=folder / "driver.log")
    try:
        yield driver
    finally:
        driver.kill()


def _finish(spark: SparkSession, ground: Ground, out: Path, kind: type[Pipeline] = Pipeline) -> None:
    pipeline = kind(spark, str(out), {"url": ground.url, "maxEventsPerTrigger": "1000"})
    pipeline.start()
    assert pipeline.wait(120)


def _check(spark: SparkSession, ground: Ground, out: Path) -> None:
    events = asyncio.run(_log(ground))
    print(f"{len(events)} events", flush=True)
    bronze = tables.read(spark, str(out), "events")
    columns = ("queue", "seq", "job", "version", "move", "drive", "fence")
    assert sorted(map(tuple, bronze.select(*columns).collect()), key=repr) == sorted(
        (tuple(getattr(event, name) for name in columns) for event in events), key=repr
    )
    for name, shape in SHAPES.items():
        found = tables.read(spark, str(out), name)
        assert seen(found) == seen(shape.of(bronze)) == wanted(EXPECTED[name](events), found.columns)
        tables.compact(spark, str(out), name, grace_ms=0)
        assert seen(tables.read(spark, str(out), name)) == wanted(EXPECTED[name](events), found.columns)


async def _log(ground: Ground) -> list[Event]:
    async with ground.open() as store:
        return [event for queue in QUEUES async for event in events_of(store, queue)]
