"""From the event log of a store into the tables of a lake: once, going on, stopped, and started again."""

import os
import shutil
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from penstock.core import decide
from penstock.core.errors import OptionError, PenstockError
from penstock.core.events import Event
from penstock.core.job import NewJob, QueueRef
from penstock.spark import lake
from penstock.spark.errors import TableError
from penstock.spark.lake.registering import register as register_views
from penstock.spark.pipeline import Pipeline
from penstock.spark.run import Run, main, run
from penstock.stores.protocol import Store
from tests.kit.waiting import PATIENCE
from tests.spark.conftest import SparkPlace
from tests.spark.lake_kit import (
    add,
    bring,
    damage,
    event_rows,
    expected_attempts,
    expected_jobs,
    here,
    made,
    seen,
    wanted,
)
from tests.spark.test_lake_fold import many_histories
from tests.spark.test_lake_tables import batches_of, counts_of

MAIL = QueueRef("default", "mail")
SUMS = {"events": "seq", "attempts": "fence", "jobs": "version"}


async def work(store: Store, jobs: Sequence[str]) -> None:
    """Jobs that are enqueued and executed; the last one stays in the hands of its worker."""
    new = [NewJob(id=each, nonce=each, task="send", payload=b"{}") for each in jobs]
    await store.moves.enqueue(MAIL, new)
    claims = await store.moves.claim(MAIL, worker="w1", limit=len(jobs), lease_ms=60_000)
    for job in claims.jobs[:-1]:
        await store.moves.settle(MAIL, [decide.settle(job, decide.Returned(b"1"), lambda low, _: low)])


def fill(place: SparkPlace, *jobs: str) -> list[Event]:
    """Let jobs run, and give back the whole log."""

    async def act(store: Store) -> list[Event]:
        await work(store, jobs)
        return await store.events.read_events(MAIL, limit=10_000)

    return place.run(act)


def check(spark: SparkSession, out: Path, events: Sequence[Event]) -> None:
    found = lake.read(spark, str(out), "events")
    assert sorted(row.seq for row in found.collect()) == sorted(event.seq for event in events)
    for name, fold in (("attempts", expected_attempts), ("jobs", expected_jobs)):
        rows = lake.read(spark, str(out), name).drop("closed_day", "bucket")
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
    none = run(spark, wish)

    assert (first.batches, first.events) == (1, 8)
    assert later.events == len(events) - 8
    assert none.batches == 0
    check(spark, tmp_path / "out", events)
    said = lake.open_lake(wish.out).bronze.said
    assert said.offsets["queues"]["default/mail"]["cursor"]


def test_batches_are_bounded_and_an_idle_look_writes_nothing(
    spark: SparkSession, on_sqlite: SparkPlace, tmp_path: Path
) -> None:
    events = fill(on_sqlite, *(f"job-{number}" for number in range(20)))
    wish = Run(out=str(tmp_path / "out"), options={"url": on_sqlite.url, "maxEventsPerTrigger": "13"})

    done = run(spark, wish)
    before = _files(tmp_path / "out")
    run(spark, wish)

    assert done.batches == -(-len(events) // 13)
    assert _files(tmp_path / "out") == before
    check(spark, tmp_path / "out", events)


def _files(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


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


class Failing(Pipeline):
    """Every task fails after it has written its files, and after some tries the driver does."""

    fails = 0

    def _on_executors(self, work: Callable[[Any], Any], pieces: Sequence[Any]) -> list[Any]:
        def stumbling(piece: Any) -> Any:
            from pyspark import TaskContext

            done = work(piece)
            context = TaskContext.get()
            if context is not None and context.attemptNumber() == 0:
                raise RuntimeError("this task fails once, with its files written")
            return done

        Failing.fails -= 1
        if Failing.fails == 0:
            raise RuntimeError("the driver fell over")
        return super()._on_executors(stumbling, pieces)


def test_tasks_that_fail_after_they_wrote_and_drivers_that_fall_over_double_nothing(
    spark: SparkSession, on_sqlite: SparkPlace, tmp_path: Path
) -> None:
    events = fill(on_sqlite, "a", "b", "c")
    out = tmp_path / "out"
    for fails in (1, 2):
        Failing.fails = fails
        broken = Failing(spark, str(out), {"url": on_sqlite.url})
        broken.start()
        with pytest.raises(RuntimeError, match="fell over"):
            broken.wait(PATIENCE)

    Failing.fails = 0
    last = Failing(spark, str(out), {"url": on_sqlite.url})
    last.start()

    assert last.wait(PATIENCE)
    check(spark, out, events)


def test_another_store_is_refused_and_the_lake_stays_as_it_was(
    spark: SparkSession, tmp_path: Path, on_sqlite: SparkPlace
) -> None:
    events = fill(on_sqlite, "a", "b")
    other = SparkPlace("sqlite", f"sqlite:///{tmp_path}/other.db")
    fill(other, "x", "y", "z")
    out = str(tmp_path / "out")
    run(spark, Run(out=out, options={"url": on_sqlite.url}))

    with pytest.raises(TableError, match="this lake has events of another store"):
        run(spark, Run(out=out, options={"url": other.url}))
    check(spark, tmp_path / "out", events)


def test_what_is_wrong_is_said_in_a_line(
    spark: SparkSession, tmp_path: Path, on_sqlite: SparkPlace, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "out")
    with pytest.raises(OptionError, match="maxEventsPerTrigger"):
        run(spark, Run(out=out, options={"url": "sqlite:///x.db", "maxEventsPerTrigger": "many"}))
    with pytest.raises(PenstockError, match=r"there is no such file as .*nothing\.db"):
        run(spark, Run(out=out, options={"url": f"sqlite:///{tmp_path}/nothing.db"}))
    assert main(["--out", out, "--once"]) == 2
    assert capsys.readouterr().err.startswith("penstock: error: url: found None, wanted the url of a store")
    fill(on_sqlite, "a")
    (tmp_path / "file").write_text("")
    with pytest.raises(PenstockError, match="file"):
        run(spark, Run(out=str(tmp_path / "file" / "lake"), options={"url": on_sqlite.url}))


# Readers


def test_spark_counts_as_all_other_engines_before_and_after_an_optimise_and_within_a_batch(
    spark: SparkSession, tmp_path: Path
) -> None:
    events = many_histories(range(500, 505))
    tables = made(tmp_path)
    *first, last = batches_of(events, 4)
    bring(tables, *first)

    def same() -> list[Any]:
        found = counts_of(tmp_path)
        found["Spark"] = [
            tuple(
                lake.read(spark, str(tmp_path), name).selectExpr("count(*)", f"sum({column})").first() or ()
            )
            for name, column in SUMS.items()
        ]
        assert len({str(each) for each in found.values()}) == 1, found
        return found["Spark"]

    before = same()
    begun = lake.read(spark, str(tmp_path), "jobs")
    lake.optimize(str(tmp_path))
    assert same() == before
    cut = add(tables, last)
    assert same()[1:] == before[1:]
    tables.follow(here, 2, cut)
    assert same() != before
    # A reader that began before goes on with its version.
    assert begun.count() == before[2][0]
    check(spark, tmp_path, events)
    assert lake.events(spark, str(tmp_path), after_batch=2).count() == len(last)
    assert lake.read(spark, str(tmp_path), "jobs", version=0).count() == 0
    with pytest.raises(OptionError, match="version: found 99"):
        lake.read(spark, str(tmp_path), "jobs", version=99)


def test_a_file_with_another_bit_is_never_read_as_if_it_were_whole(
    spark: SparkSession, tmp_path: Path
) -> None:
    """By the checksums within it: object stores keep none beside it."""
    tables = made(tmp_path)
    bring(tables, event_rows(many_histories([1])))
    (file,) = (tmp_path / "bronze/events" / each.path for each in tables.bronze.files()[:1])
    damage(file)

    with pytest.raises(Exception, match=file.name):
        lake.read(spark, str(tmp_path), "events").selectExpr("sum(hash(*))").collect()


def test_tables_that_are_not_there_are_named(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(TableError, match="there is no table"):
        lake.read(spark, str(tmp_path), "jobs")
    with pytest.raises(OptionError, match="table: found 'job', wanted one of events, attempts, jobs"):
        lake.read(spark, str(tmp_path), "job")


# Names for SQL


@pytest.fixture
def filled(tmp_path: Path) -> str:
    """A lake with jobs in it."""
    bring(made(tmp_path / "a lake"), event_rows(many_histories([7])))
    return str(tmp_path / "a lake")


@pytest.fixture
def database(spark: SparkSession) -> Iterator[str]:
    yield "lake_views"
    spark.sql("DROP DATABASE IF EXISTS lake_views CASCADE")
    warehouse = str(spark.conf.get("spark.sql.warehouse.dir")).removeprefix("file:")
    shutil.rmtree(Path(warehouse) / "lake_views.db", ignore_errors=True)


def test_views_of_a_session_and_of_a_catalog_have_the_rows_of_the_tables(
    spark: SparkSession, filled: str, database: str
) -> None:
    expected = lake.read(spark, filled, "jobs")

    assert register_views(spark, filled) == ["bronze_events", "silver_attempts", "silver_jobs"]
    assert seen(spark.table("silver_jobs")) == seen(expected)
    names = register_views(spark, filled, database)

    assert names[-1] == "lake_views.silver_jobs"
    assert seen(spark.table("lake_views.silver_jobs")) == seen(expected)
    assert spark.table("lake_views.silver_jobs").dtypes == expected.dtypes
    comments = {row.col_name: row.comment for row in spark.sql(f"DESCRIBE {names[-1]}").collect()}
    assert comments["enqueue_seq"] == "The number of the event that enqueued it"
    # Another batch: the view in the catalog reads the newest version.
    bring(made(filled), event_rows(many_histories([8])))
    assert spark.table(names[-1]).count() == lake.read(spark, filled, "jobs").count() > expected.count()


def test_the_format_reads_tables_of_a_lake(spark: SparkSession, filled: str) -> None:
    reader = spark.read.format("penstock").option("lake", filled)

    for name in lake.NAMES:
        assert seen(reader.option("table", name).load()) == seen(lake.read(spark, filled, name))
    some = reader.options(table="jobs", columns="state,job").load()
    assert some.columns == ["state", "job"]
    for options, said in (
        ({"table": "dlq"}, "table: found 'dlq', wanted one of events, attempts, jobs"),
        ({"queues": "mail"}, "option: found 'queues', wanted one that a table of a lake has"),
        ({"columns": "colour"}, "columns: found 'colour'"),
    ):
        with pytest.raises(PySparkException, match=said):
            spark.read.format("penstock").options(**{"lake": filled, **options}).load()


def test_tables_of_a_store_have_names_in_a_catalog(
    spark: SparkSession, on_sqlite: SparkPlace, database: str
) -> None:
    fill(on_sqlite, "a", "b")
    spark.sql(f"CREATE DATABASE {database}")
    options = f"url '{on_sqlite.url}', table 'jobs'"

    spark.sql(f"CREATE TABLE {database}.store USING penstock OPTIONS ({options})")
    with_options = f"WITH ('url' = '{on_sqlite.url}', 'table' = 'jobs')"
    spark.sql(f"CREATE VIEW {database}.mails AS SELECT id, state FROM {database}.store {with_options}")

    assert sorted(row.id for row in spark.table(f"{database}.mails").collect()) == ["a", "b"]
    with pytest.raises(PySparkException, match="read a table of a catalog by SELECT"):
        spark.table(f"{database}.store").collect()
