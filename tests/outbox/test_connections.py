"""Outboxes in transactions of every kind."""

import sqlite3
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from penstock.core.errors import ConfigError, StoreFormatError, TransactionError
from penstock.outbox import open_outbox
from penstock.stores.memory import MemoryStore
from tests.outbox.conftest import Shop, jobs_in, outbox_in, relaying


def over_psycopg(database: str) -> str:
    """The url as SQLAlchemy has it."""
    return database.replace("postgresql://", "postgresql+psycopg://")


async def test_a_session_that_is_awaited(shop: Shop, database: str) -> None:
    """Committed and rolled back with it."""
    engine = create_async_engine(over_psycopg(database))
    async with relaying(database, MemoryStore()) as relay:
        async with AsyncSession(engine) as session:
            async with session.begin():
                kept = await shop.outbox.enqueue_in(session, shop.send, "kept")
            async with session.begin():
                await shop.outbox.enqueue_in(session, shop.send, "lost")
                await session.rollback()
        await relay.carry()
        jobs = await jobs_in(relay._store)
    await engine.dispose()

    assert [job.id for job in jobs] == [kept.id]


async def test_connections_and_sessions_that_block(shop: Shop, database: str) -> None:
    """No loop runs for them, and no store is reached."""
    engine = create_engine(over_psycopg(database))
    async with relaying(database, MemoryStore()) as relay:
        with Session(engine) as session, session.begin():
            first = shop.outbox.blocking.enqueue_in(session, shop.send, "session")
        with psycopg.connect(database) as connection:
            second = shop.outbox.blocking.enqueue_in(connection, shop.send, "connection")
        await relay.carry()
        jobs = await jobs_in(relay._store)
    engine.dispose()

    assert [job.id for job in jobs] == [first.id, second.id]


async def test_a_sqlite_database_of_the_caller(shop: Shop, tmp_path: Path) -> None:
    """The same, in a file that is not Penstock's."""
    file = tmp_path / "shop.db"
    base = sqlite3.connect(file)
    with pytest.raises(StoreFormatError, match="penstock outbox"):
        shop.outbox.blocking.enqueue_in(base, shop.send, "too early")
    async with relaying(f"sqlite:///{file}", MemoryStore()) as relay:
        kept = shop.outbox.blocking.enqueue_in(base, shop.send, "kept")
        base.commit()
        shop.outbox.blocking.enqueue_in(base, shop.send, "lost")
        base.rollback()
        carried = await relay.carry()
        jobs = await jobs_in(relay._store)
        state = await relay._outbox.state(10)
    base.close()

    assert carried.jobs == 1
    assert [job.id for job in jobs] == [kept.id]
    assert state.waiting == 0


async def test_entries_of_a_sqlite_outbox_are_set_aside_and_tried_again(shop: Shop, tmp_path: Path) -> None:
    """As in PostgreSQL."""
    file = tmp_path / "shop.db"
    async with relaying(f"sqlite:///{file}", MemoryStore()) as relay:
        base = sqlite3.connect(file, isolation_level=None)
        base.execute(
            "INSERT INTO penstock_outbox (tenant, queue, body, written_at) VALUES ('default', 'x', '?', 0)"
        )
        with pytest.raises(TransactionError, match="autocommit"):
            shop.outbox.blocking.enqueue_in(base, shop.send, "ada")
        base.execute("BEGIN")
        shop.outbox.blocking.enqueue_in(base, shop.send, "ada")
        base.execute("COMMIT")
        base.close()
        carried = await relay.carry()
        before = await relay._outbox.state(10)
        back = await relay._outbox.retry(None)
        after = await relay._outbox.state(10)

    assert (carried.jobs, carried.failed) == (1, 1)
    assert (before.waiting, before.failed, len(before.first_failed)) == (0, 1, 1)
    assert (back, after.waiting, after.failed) == (1, 1, 0)


async def test_the_wrong_kind_of_connection_is_refused(shop: Shop, database: str) -> None:
    """Each for its reason."""
    wrong: Any = sqlite3.connect(":memory:")
    async with outbox_in(database):
        with pytest.raises(TransactionError, match=r"outbox\.blocking"):
            await shop.outbox.enqueue_in(wrong, shop.send, "ada")
        wrong.close()
        with pytest.raises(TransactionError, match="cannot be used"):
            shop.outbox.blocking.enqueue_in(wrong, shop.send, "ada")
        wrong = object()
        with pytest.raises(TransactionError, match="psycopg 3"):
            shop.outbox.blocking.enqueue_in(wrong, shop.send, "ada")


def test_an_outbox_is_in_a_database() -> None:
    """Where a transaction can write into it."""
    with pytest.raises(ConfigError, match="wanted postgresql"):
        open_outbox("redis://localhost")
