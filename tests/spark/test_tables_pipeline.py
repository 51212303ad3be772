"""The pipeline from the event log of a store into tables: once, going on, stopped, and started again."""

import os
import signal
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.core import decide
from penstock.core.errors import OptionError, PenstockError, TableError
from penstock.core.events import Event
from penstock.core.job import NewJob, QueueRef
from penstock.spark import tables
from penstock.spark.pipeline import Pipeline
from penstock.spark.run import Run, main, run
from penstock.stores.protocol import Store
from tests.spark.conftest import SparkPlace
from tests.spark.tables_kit import expected_attempts, expected_jobs, seen, wanted

MAIL = QueueRef("default", "mail")


async def work(store: Store, jobs: Sequence[str]) -> None:
    """Jobs that are enqueued and executed; the last one stays in the hands of its worker."""
    new = [NewJob(id=each, nonce=each, task="send", payload=b"{}") for each in jobs]
    await store.enqueue(MAIL, new)
    claims = await store.claim(MAIL, worker="w1", limit=len(jobs), lease_ms=60_000)
    for job in claims.jobs[:-1]:
        await store.settle(MAIL, [decide.settle(job, decide.Returned(b"1"), lambda low, _: low)])


def fill(place: SparkPlace, *jobs: str) -> list[Event]:
    """Let jobs run, and give back the whole log."""

    async def act(store: Store) -> list[Event]:
        await work(store, jobs)
        return await store.events(MAIL, limit=10_000)

    return place.run(act)


def check(spark: SparkSession, out: Path, events: Sequence[Event]) -> None:
    found = tables.read(spark, str(out), "events")
    assert sorted(row.seq for row in found.collect()) == sorted(event.seq for event in events)
    for name, fold in (("attempts", expected_attempts), ("jobs", expected_jobs)):
        rows = tables.read(spark, str(out), name)
        assert seen(rows) == wanted(fold(events), rows.columns)


@pytest.fixture
def on_sqlite(tmp_path: Path) -> SparkPlace:
    """One store, where it does not matter which."""
    return SparkPlace("sqlite", f"sqlite:///{tmp_path}/jobs.db")


def test_what_is_there_comes_once_and_what_comes_later_the_next_time(
    spark: SparkSession, place: SparkPlace, tmp_path: Path
) -> None:
    wish = Run(out=str(tmp_path / "out"), options={"url": place.url})
    fill(place, "a", "b", "c")

    first = run(spark, wish)
    events = fill(place, "d", "e")
    later = run(spark, wish)

    assert (first.batches, first.events) == (1, 8)
    assert later.events == len(events) - 8
    check(spark, tmp_path / "out", events)
    newest = tables.open_table(spark, wish.out, "events").live()[-1]
    assert newest.offsets["queues"]["default/mail"]["cursor"]


def test_it_goes_on_until_it_is_told_to_stop(
    spark: SparkSession, on_sqlite: SparkPlace, tmp_path: Path
) -> None:
    place = on_sqlite
    fill(place, "a", "b")
    told = threading.Event()
    written: list[Event] = []

    def tell(done: object) -> None:
        # After the first events come others, and after those the signal.
        if getattr(done, "events", 0) and not written:
            written.extend(fill(place, "c", "d"))
        elif written and getattr(done, "events", 0) == len(written) and not told.is_set():
            told.set()
            os.kill(os.getpid(), signal.SIGTERM)

    done = run(spark, Run(out=str(tmp_path / "out"), options={"url": place.url}, every=0.1), tell)

    assert done.events == len(written)
    assert done.batches >= 2
    check(spark, tmp_path / "out", written)


class Interrupted(Pipeline):
    """Fails between bronze and silver, once."""

    failed = False

    def _follow(self, query: str) -> None:
        if not self.failed:
            self.failed = True
            raise RuntimeError("the driver fell over")
        super()._follow(query)


def test_a_batch_that_failed_half_way_is_finished_first_and_under_no_other_checkpoint(
    spark: SparkSession, on_sqlite: SparkPlace, tmp_path: Path
) -> None:
    place = on_sqlite
    wish = Run(out=str(tmp_path), options={"url": place.url})
    events = fill(place, "a", "b")
    broken = Interrupted(spark, str(tmp_path), {"url": place.url})
    broken.start()
    with pytest.raises(RuntimeError, match="fell over"):
        broken.wait(60)
    assert tables.open_table(spark, str(tmp_path), "jobs").live() == []

    done = run(spark, wish)

    assert done.events == len(events)
    check(spark, tmp_path, events)
    (tmp_path / "_checkpoint").rename(tmp_path / "elsewhere")
    with pytest.raises(TableError, match="belongs to the query"):
        run(spark, wish)


def test_what_is_wrong_is_said_in_a_line(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "out")
    with pytest.raises(OptionError, match="maxEventsPerTrigger"):
        run(spark, Run(out=out, options={"url": "sqlite:///x.db", "maxEventsPerTrigger": "many"}))
    with pytest.raises(PenstockError, match=r"there is no such file as .*nothing\.db"):
        run(spark, Run(out=out, options={"url": f"sqlite:///{tmp_path}/nothing.db"}))
    assert main(["--out", out, "--once"]) == 2
    assert capsys.readouterr().err.startswith("penstock: error: url: found None, wanted the url of a store")
