"""The audit of real stores, at rest and at work."""

import asyncio
import json
import sqlite3
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.cli.main import run
from penstock.core import decide
from penstock.core.errors import UnknownQueueError
from penstock.core.history import Rule
from penstock.core.job import NewJob, QueueRef
from penstock.core.limits import Declaration
from penstock.spark.audit.running import audit_store
from penstock.stores.protocol import Store
from tests.core.test_history import plain_lives
from tests.spark.conftest import SparkPlace
from tests.spark.jobs import moment
from tests.spark.lake_kit import bring, damage, event_rows, made

MAIL = QueueRef("default", "mail")


def new(name: str) -> NewJob:
    return NewJob(id=name, nonce=name, task="send", payload=b"{}", idempotency_key=f"once-{name}")


async def work(store: Store, first: int, last: int) -> None:
    """Jobs come; of every ten one waits, one runs, one fails, one is deleted; the others are completed."""
    for start in range(first, last, 10):
        names = [f"job-{number}" for number in range(start, start + 10)]
        await store.moves.enqueue(MAIL, [new(name) for name in names])
        claims = await store.moves.claim(MAIL, worker="w1", limit=9, lease_ms=60_000)
        for at, job in enumerate(claims.jobs[1:]):
            ending = decide.RaisedFail("never") if at == 0 else decide.Returned(b"1")
            await store.moves.settle(MAIL, [decide.settle(job, ending, lambda low, high: high)])
        await store.moves.delete(MAIL, [claims.jobs[2].id])


@contextmanager
def working(place: SparkPlace) -> Iterator[None]:
    """Somebody works on the store all the time."""
    stop = threading.Event()

    async def on(store: Store) -> None:
        number = 1_000
        while not stop.is_set():
            await work(store, number, number + 10)
            number += 10
            # Spark needs the processor more.
            await asyncio.sleep(0.02)  # real time: it paces a load that nobody waits for

    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(place.run, on)
        try:
            yield
        finally:
            stop.set()
        done.result()


def test_a_store_at_work_gives_no_false_alarm(spark: SparkSession, place: SparkPlace) -> None:
    place.run(lambda store: work(store, 0, 50))
    with working(place):
        verdict = audit_store(spark, place.url, tenant="default")

    assert [str(each) for each in verdict.first(5)] == []
    assert verdict.is_compared
    assert verdict.jobs >= 50


def test_a_tenant_without_queues_is_an_error(spark: SparkSession, tmp_path: Path) -> None:
    place = SparkPlace("sqlite", f"sqlite:///{tmp_path}/jobs.db")
    place.run(lambda store: work(store, 0, 10))

    with pytest.raises(UnknownQueueError, match="nobody"):
        audit_store(spark, place.url, tenant="nobody")


def test_the_command_names_what_was_taken_behind_a_stores_back_and_which_limits_were_broken(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Limits that are declared now hold from the time that is named."""
    file = tmp_path / "jobs.db"
    place = SparkPlace("sqlite", f"sqlite:///{file}")
    # The session of all tests is not to be stopped.
    monkeypatch.setattr(spark, "stop", lambda: None)
    place.run(lambda store: work(store, 0, 20))

    assert run(["lake", "audit", "--url", place.url, "--json"]) == 0
    (clean,) = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert (clean["clean"], clean["compared"], clean["lost"]) == (True, True, 0)
    assert (clean["jobs"], clean["failed"], clean["removed"]) == (20, 2, 2)
    assert (clean["live"]["pending"], clean["live"]["active"]) == (2, 2)

    async def go_on(store: Store) -> int:
        await store.clock.advance_clock(1_000)
        now = await store.clock.now()
        await work(store, 20, 40)
        await store.queues.declare(MAIL, Declaration(max_active=1))
        return now

    now = place.run(go_on)
    events = place.run(lambda store: store.events.read_events(MAIL, limit=1_000))
    with closing(sqlite3.connect(file)) as connection, connection:
        (lost,) = connection.execute("SELECT id FROM job WHERE state = 'pending' LIMIT 1").fetchone()
        connection.execute("DELETE FROM job WHERE id = ?", [lost])
        (newest,) = connection.execute("SELECT max(seq) FROM event").fetchone()
        connection.execute("DELETE FROM event WHERE seq IN (8, ?)", [newest])
    out, since = tmp_path / "breaches", moment(now)
    assert since is not None
    command = ["lake", "audit", "--url", place.url, "--out", str(out), "--limits-since", since.isoformat()]

    assert run(command) == 1
    text = capsys.readouterr().out
    rows = spark.read.parquet(str(out)).collect()
    found = {(row.rule, row.job, row.seq) for row in rows}
    fast = {row.seq for row in rows if row.rule == Rule.MAX_ACTIVE}
    assert f"not-in-store: queue mail, job {lost}" in text
    assert "seq-gap: queue mail, event 8, events 8 to 8 are not in the store" in text
    assert text.rstrip().endswith(f"{len(rows)} breaches")
    assert ("not-in-store", lost) in {(rule, job) for rule, job, _ in found}
    assert {("seq-gap", None, 8), ("seq-gap", None, newest)} <= found
    assert fast
    assert fast <= {each.seq for each in events if each.at >= now}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--tables", "nowhere", "--limits-since", "2026-01-01"], "--limits-since"),
        (["--tables", "nowhere", "--since", "yesterday"], "--since: found 'yesterday', wanted last"),
        (["--tables", "nowhere", "--kept", "audits"], "--kept"),
        (["--tables", "nowhere", "--since", "last", "--queue", "mail"], "--queue"),
        (["--tables", "s3://lake", "--since", "last"], "--kept"),
        (["--url", "sqlite:///jobs.db", "--since", "last"], "--since"),
        (["--url", "sqlite:///jobs.db", "--trimmed"], "--trimmed"),
        (["--url", "sqlite:///jobs.db", "--limits-since", "soon"], "--limits-since"),
        (["--url", "memory://"], "memory"),
    ],
)
def test_the_command_refuses_what_makes_no_sense(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["lake", "audit", *arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line


def test_the_command_audits_tables_and_names_a_file_that_is_damaged(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark, "stop", lambda: None)
    lake = made(tmp_path)
    bring(lake, event_rows([each for each in plain_lives(4, kept=4) if each.seq > 6]))
    command = ["lake", "audit", "--tables", str(tmp_path), "--trimmed"]

    assert run([*command, "--json"]) == 0
    (verdict,) = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert (verdict["clean"], verdict["compared"], verdict["events"]) == (True, False, 6)

    # The same, kept; and an audit of nothing new after it.
    for run_number in (1, 2):
        assert run([*command, "--since", "last", "--json"]) == 0
        (kept,) = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert kept == verdict
        assert (tmp_path / "audit" / f"run-{run_number:08}" / "run.parquet").exists()

    file = tmp_path / "bronze" / "events" / lake.bronze.files()[0].path
    damage(file)

    assert run(command) == 1
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith("penstock: error: Spark: ")
    assert file.name in said
