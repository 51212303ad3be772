"""What happens with files that cannot be a store, or cannot be one any longer."""

import asyncio
import itertools
import os
import sqlite3
import subprocess
import sys
import textwrap
import threading
from contextlib import closing
from pathlib import Path

import pytest

from penstock.core.errors import (
    StoreError,
    StoreFormatError,
    StoreFullError,
    StoreTimeoutError,
    StoreUnavailableError,
    StoreVersionError,
)
from penstock.core.job import NewJob, QueueRef
from penstock.core.moves import Beat
from penstock.core.outcomes import Applied
from penstock.core.states import State
from penstock.stores.sqlite import SqliteStore
from penstock.stores.sqlite.engine import Engine
from penstock.stores.sqlite.sources import load_migrations
from penstock.stores.values import Durability, QueueContents
from tests.conformance.stores import opened
from tests.kit.waiting import PATIENCE

QUEUE = QueueRef("default", "mail")


def new(name: str, payload: bytes = b"{}") -> NewJob:
    return NewJob(id=name, nonce=name, task="send", payload=payload)


async def test_a_file_that_is_no_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("not a database, but long enough to look like something" * 100)

    with pytest.raises(StoreFormatError, match=r"notes\.txt"):
        await SqliteStore(path).open()

    assert path.read_text().startswith("not a database")


async def test_a_database_of_something_else_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE customer (name TEXT)")
    connection.close()

    with pytest.raises(StoreFormatError, match="not one of Penstock's"):
        await SqliteStore(path).open()

    connection = sqlite3.connect(path)
    tables = connection.execute("SELECT name FROM sqlite_master").fetchall()
    connection.close()
    assert tables == [("customer",)]


async def test_a_database_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    store = SqliteStore(path)
    await store.open()
    await store.close()
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 999")
    connection.close()

    with pytest.raises(StoreVersionError, match="999"):
        await SqliteStore(path).open()


async def test_a_file_from_before_there_were_readers_gets_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    older = load_migrations()[:2]
    with monkeypatch.context() as patched:
        patched.setattr("penstock.stores.sqlite.migrate.load_migrations", lambda: older)
        store = SqliteStore(tmp_path / "jobs.db")
        await store.open()
        _open_queue_as_before(tmp_path / "jobs.db")
        _enqueue_as_before(tmp_path / "jobs.db", "a", "b")
        written = (await store.health.info()).schema_version
        await store.close()
    store = SqliteStore(tmp_path / "jobs.db")
    await store.open()
    first, second = await store.events.read_events(QUEUE)
    reader = await store.readers.register_reader(QUEUE, "audit", first.cursor)
    info = await store.health.info()

    assert (written, info.schema_version) == (2, len(load_migrations()))
    assert await store.events.read_events(QUEUE, after=reader.cursor) == [second]
    assert await store.health.check(QUEUE) == []
    await store.close()


async def test_jobs_from_before_they_were_counted_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    older = load_migrations()[:6]
    with monkeypatch.context() as patched:
        patched.setattr("penstock.stores.sqlite.migrate.load_migrations", lambda: older)
        store = SqliteStore(tmp_path / "jobs.db")
        await store.open()
        _open_queue_as_before(tmp_path / "jobs.db")
        _enqueue_as_before(tmp_path / "jobs.db", "a", "b", "c")
        await store.close()
    store = SqliteStore(tmp_path / "jobs.db")
    await store.open()
    before = await store.reads.counts(QUEUE)
    await store.moves.cancel(QUEUE, ["a"])
    await store.moves.delete(QUEUE, ["b"])
    after = await store.reads.counts(QUEUE)

    assert before == dict.fromkeys(State, 0) | {State.PENDING: 3}
    assert after == dict.fromkeys(State, 0) | {State.PENDING: 1, State.CANCELLED: 1}
    assert await store.health.check(QUEUE) == []
    await store.close()


async def test_queues_from_before_they_could_be_deleted_keep_their_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They have no mark of their making, and can be deleted; the next one has both a number and a mark."""
    older = load_migrations()[:4]
    with monkeypatch.context() as patched:
        patched.setattr("penstock.stores.sqlite.migrate.load_migrations", lambda: older)
        store = SqliteStore(tmp_path / "jobs.db")
        await store.open()
        _open_queue_as_before(tmp_path / "jobs.db")
        _enqueue_as_before(tmp_path / "jobs.db", "a")
        await store.close()
    store = SqliteStore(tmp_path / "jobs.db")
    await store.open()
    before = await store.queues.find_queue(QUEUE)
    await store.moves.delete(QUEUE, ["a"])
    deleted = await store.queues.delete_queue(QUEUE)
    after = await store.queues.open_queue(QUEUE)
    tables = {"event", "idempotency", "deleted_queue"}
    with closing(sqlite3.connect(tmp_path / "jobs.db")) as connection:
        left = [connection.execute(f"SELECT count(*) FROM {each}").fetchone()[0] for each in tables]

    assert before is not None
    assert (before.number, before.made) == (1, "")
    assert (deleted, after.number, bool(after.made)) == (QueueContents(), 2, True)
    assert left == [0, 0, 0]
    assert await store.health.check(QUEUE) == []
    await store.close()


async def test_events_of_a_deleted_queue_are_removed_in_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a deletion was cut off in between, the next one goes on."""
    monkeypatch.setattr("penstock.stores.sqlite.deletion.SWEEP_LIMIT", 3)
    store = SqliteStore(tmp_path / "jobs.db")
    await store.open()
    await store.moves.enqueue(QUEUE, [new(f"j{number}") for number in range(10)])
    await store.moves.delete(QUEUE, [f"j{number}" for number in range(10)])
    with monkeypatch.context() as patched:
        patched.setattr("penstock.stores.sqlite.queues.sweep", lambda _: False)
        await store.queues.delete_queue(QUEUE)
    await store.moves.enqueue(QUEUE, [new("a")])
    events = await store.events.read_events(QUEUE)
    await store.moves.delete(QUEUE, ["a"])
    deleted = await store.queues.delete_queue(QUEUE)
    with closing(sqlite3.connect(tmp_path / "jobs.db")) as connection:
        left = connection.execute("SELECT count(*) FROM event").fetchone()

    assert [event.job for event in events] == ["a"]
    assert (deleted, left) == (QueueContents(), (0,))
    await store.close()


def _open_queue_as_before(path: Path) -> None:
    """A queue as it was written before queues could be deleted."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(
            "INSERT INTO queue (tenant, name, number) VALUES (?, ?, 1)", (QUEUE.tenant, QUEUE.name)
        )


def _enqueue_as_before(path: Path, *names: str) -> None:
    """Jobs as they were written before leases kept their durations."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for seq, name in enumerate(names, start=1):
            connection.execute(
                "INSERT INTO job (queue, id, nonce, task, state, priority, place, enqueued_at, max_attempts, "
                "retention_ms, key_held_ms, options, payload) "
                "VALUES (1, ?, ?, 'send', 'pending', 5, ?, 1, 4, 86400000, 86400000, '{}', '{}')",
                (name, name, seq),
            )
            connection.execute(
                "INSERT INTO event (queue, seq, at, move, job, version, drive, target, task, priority, "
                "max_attempts) VALUES (1, ?, 1, 'enqueue', ?, 1, 1, 'pending', 'send', 5, 4)",
                (seq, name),
            )
        connection.execute("UPDATE queue SET seq = ?, place = ?, at_us = 1000", (len(names), len(names)))


async def test_a_lease_from_before_it_kept_its_duration_is_held_and_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It counts as one of the longest."""
    older = load_migrations()[:5]
    with monkeypatch.context() as patched:
        patched.setattr("penstock.stores.sqlite.migrate.load_migrations", lambda: older)
        store = SqliteStore(tmp_path / "jobs.db")
        await store.open()
        _open_queue_as_before(tmp_path / "jobs.db")
        _enqueue_as_before(tmp_path / "jobs.db", "a")
        now = await store.clock.now()
        await store.close()
    with closing(sqlite3.connect(tmp_path / "jobs.db", isolation_level=None)) as connection:
        connection.execute(
            "UPDATE job SET state = 'active', version = 2, delivery = 1, token = 't', worker = 'w', "
            "fence = ?, deadline = ?",
            (now * 1000, now + 30_000),
        )
        connection.execute(
            "INSERT INTO event (queue, seq, at, move, job, version, drive, source, target, task, priority, "
            "delivery, attempt, fence, worker, deadline) "
            "VALUES (1, 2, ?, 'claim', 'a', 2, 1, 'pending', 'active', 'send', 5, 1, 1, ?, 'w', ?)",
            (now, now * 1000, now + 30_000),
        )
        connection.execute("UPDATE queue SET seq = 2, at_us = ?", (now * 1000,))
    store = SqliteStore(tmp_path / "jobs.db")
    await store.open()
    held = await store.reads.expired(QUEUE)
    renewed = await store.moves.heartbeat(QUEUE, [Beat("a", "t")], 30_000)
    await store.clock.advance_clock(31_000)
    ended = await store.reads.expired(QUEUE)
    info = await store.queues.find_queue(QUEUE)
    findings = await store.health.check(QUEUE)
    await store.close()

    assert (held, renewed, [lease.id for lease in ended]) == ([], [Applied(State.ACTIVE)], ["a"])
    assert (info.clock_step if info else None, findings) == (None, [])


async def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailableError, match="folder"):
        await SqliteStore(tmp_path / "nowhere" / "jobs.db").open()


def test_a_read_only_folder_is_named(tmp_path: Path) -> None:
    """In a process of an ordinary user: the superuser may write everywhere."""
    tmp_path.chmod(0o555)
    script = f"""
        import asyncio, os
        from pathlib import Path
        from penstock.core.errors import StoreError
        from penstock.stores.sqlite import SqliteStore, engine
        from penstock.stores.sqlite.sources import load_migrations

        # What is read from the package is read as the user who can.
        migrations = load_migrations()
        engine.migrate.__globals__["load_migrations"] = lambda: migrations
        store = SqliteStore({str(tmp_path / "jobs.db")!r})
        if os.getuid() == 0:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
        try:
            store._open()
        except StoreError as error:
            print(type(error).__name__, error)
    """
    for parent in tmp_path.parents[:2]:
        parent.chmod(parent.stat().st_mode | 0o111)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        capture_output=True,
        text=True,
        env=environment,
        cwd="/",
        check=False,
    )
    tmp_path.chmod(0o755)

    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(("StoreUnavailableError", "StoreReadOnlyError")), done.stdout
    assert str(tmp_path) in done.stdout


async def test_a_full_disk_refuses_the_call_and_loses_nothing(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "jobs.db")
    await store.open()
    await store.moves.enqueue(QUEUE, [new("first")])

    def shrink(connection: sqlite3.Connection) -> None:
        connection.execute("PRAGMA max_page_count = 60")

    store._backend.engine.write(shrink).result(timeout=PATIENCE)
    with pytest.raises(StoreFullError, match="disk is full"):
        await store.moves.enqueue(QUEUE, [new(f"big{i}", b'"' + b"x" * 100_000 + b'"') for i in range(10)])

    counts = await store.reads.counts(QUEUE)
    claims = await store.moves.claim(QUEUE, worker="w", limit=10, lease_ms=1000)
    assert sum(counts.values()) == 1
    assert [job.id for job in claims.jobs] == ["first"]
    assert await store.health.check(QUEUE) == []
    await store.close()


@pytest.mark.parametrize("fate", ["moved", "deleted", "replaced"])
async def test_a_file_that_is_no_longer_at_its_place_takes_nothing_in(tmp_path: Path, fate: str) -> None:
    """Jobs would go where no worker looks; put back, it goes on."""
    path, aside = tmp_path / "jobs.db", tmp_path / "aside.db"
    store = SqliteStore(path)
    await store.open()
    await store.moves.enqueue(QUEUE, [new("first")])
    if fate == "deleted":
        path.unlink()
    else:
        path.rename(aside)
    if fate == "replaced":
        path.write_bytes(b"")

    with pytest.raises(StoreUnavailableError, match="was moved"):
        await store.moves.enqueue(QUEUE, [new("second")])
    with pytest.raises(StoreUnavailableError, match="was moved"):
        await store.reads.counts(QUEUE)

    if fate == "moved":
        aside.rename(path)
        await store.moves.enqueue(QUEUE, [new("third")])
        assert [job is not None for job in await store.reads.get(QUEUE, ["first", "second", "third"])] == [
            True,
            False,
            True,
        ]
    await store.close()


@pytest.mark.parametrize("which", range(1, 5), ids=["file", "writer", "reader", "watch"])
async def test_a_file_that_cannot_be_read_while_it_is_opened_is_an_error_of_opening(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, which: int
) -> None:
    """Whichever of the connections meets it; the store can be opened later."""
    connect, connected = Engine._connect, itertools.count(1)

    def failing(engine: Engine) -> sqlite3.Connection:
        if next(connected) == which:
            raise sqlite3.OperationalError("disk I/O error")
        return connect(engine)

    monkeypatch.setattr(Engine, "_connect", failing)
    store = SqliteStore(tmp_path / "jobs.db")
    before = set(threading.enumerate())
    with pytest.raises(StoreError, match="disk I/O error"):
        await store.open()
    left = [thread for thread in set(threading.enumerate()) - before if thread.is_alive()]
    assert not [thread for thread in left if thread.name.startswith("penstock-sqlite")]

    async with opened(store):
        await store.moves.enqueue(QUEUE, [new("first")])


async def test_a_call_at_fault_does_not_take_others_down(tmp_path: Path) -> None:
    """Calls that arrive together share a transaction; the one that fails is told so, the others stand."""
    store = SqliteStore(tmp_path / "jobs.db")
    await store.open()

    def broken(connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO nowhere VALUES (1)")

    async def fail() -> None:
        await asyncio.wrap_future(store._backend.engine.write(broken))

    outcomes = await asyncio.gather(
        store.moves.enqueue(QUEUE, [new("a")]),
        fail(),
        store.moves.enqueue(QUEUE, [new("b")]),
        return_exceptions=True,
    )

    assert isinstance(outcomes[1], StoreError)
    assert [job is not None for job in await store.reads.get(QUEUE, ["a", "b"])] == [True, True]
    await store.close()


async def test_a_lock_held_for_too_long_is_a_timeout(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "jobs.db", busy_timeout=0.2)
    await store.open()
    other = sqlite3.connect(tmp_path / "jobs.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")

    with pytest.raises(StoreTimeoutError, match="locked"):
        await store.moves.enqueue(QUEUE, [new("a")])

    other.execute("ROLLBACK")
    other.close()
    await store.moves.enqueue(QUEUE, [new("a")])
    await store.close()


async def test_a_closed_store_says_so(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "jobs.db")

    with pytest.raises(StoreError, match="not open"):
        await store.reads.counts(QUEUE)


async def test_the_durability_class_sets_what_a_commit_waits_for(tmp_path: Path) -> None:
    levels = {}
    for durability in (Durability.POWER, Durability.SERVER):
        store = SqliteStore(tmp_path / f"{durability}.db", durability=durability)
        await store.open()
        future = store._backend.engine.write(lambda c: c.execute("PRAGMA synchronous").fetchone()[0])
        levels[durability] = await asyncio.wrap_future(future)
        assert (await store.health.info()).durability is durability
        await store.close()

    assert levels == {Durability.POWER: 2, Durability.SERVER: 1}


async def test_time_does_not_go_back_within_a_queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = SqliteStore(tmp_path / "jobs.db")
    await store.open()
    import time

    real = time.time_ns
    await store.moves.enqueue(QUEUE, [new("a")])
    monkeypatch.setattr(time, "time_ns", lambda: real() - 5_000_000_000)
    await store.moves.enqueue(QUEUE, [new("b")])
    monkeypatch.undo()

    first, second = await store.events.read_events(QUEUE)
    assert second.at >= first.at
    await store.close()
