"""The check of a file reads it in pages, and leaves the connection as it was."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from penstock.core.job import QueueRef
from penstock.core.states import State
from penstock.stores.sqlite import SqliteStore, check
from penstock.testing.conformance import aio
from penstock.testing.conformance.arrange import enqueue, new_job
from tests.conformance.stores import opened
from tests.stores.sqlite.test_damage import NOT_UTF8, damage


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the store's file is."""
    return tmp_path / "jobs.db"


@pytest.fixture
def store(path: Path) -> aio.InLoop:
    """An open store in a file."""
    return aio.InLoop(opened(SqliteStore(path)))


@pytest.mark.parametrize("ids", ["x'62'", NOT_UTF8, "'b'"])
async def test_every_page_is_read_whatever_an_id_is(
    store: SqliteStore, path: Path, queue: QueueRef, ids: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check, "_CHUNK", 1)
    await enqueue(store, queue, [new_job(name) for name in ("a", "b", "c", "d")])
    damage(path, "d", "options", "'nope'")
    damage(path, "b", "options", "'nope'")
    damage(path, "b", "id", ids)
    found = [
        each.job for each in await store.health.check(queue) if each.what.startswith("a record that cannot")
    ]

    assert len(found) == 2
    assert "d" in found


async def test_a_check_leaves_the_memory_of_the_connection_as_it_was(
    store: SqliteStore, queue: QueueRef
) -> None:
    await enqueue(store, queue, [new_job("a")])

    def settings(connection: sqlite3.Connection) -> list[object]:
        names = ("temp_store", "cache_size")
        return [connection.execute(f"PRAGMA {name}").fetchone()[0] for name in names]

    before = await store._backend.read(settings)
    assert await store.health.check(queue) == []
    assert await store._backend.read(settings) == before


async def test_wrong_counts_are_found_and_repaired(store: SqliteStore, path: Path, queue: QueueRef) -> None:
    await enqueue(store, queue, [new_job("a"), new_job("b")])
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE job_count SET many = many + 5 WHERE state = 'pending'")
    found = [each.what for each in await store.health.check(queue)]
    await store.quarantine.repair(queue)
    counts = await store.reads.counts(queue)

    assert found == ["the counts say 7 pending jobs, and there are 2"]
    assert counts[State.PENDING] == 2
    assert await store.health.check(queue) == []
