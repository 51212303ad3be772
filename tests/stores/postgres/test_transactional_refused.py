"""Connections that no job can be part of: what is told of them, and how long they are waited for."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import pytest
from sqlalchemy import create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from penstock import Penstock
from penstock.core.errors import BatchRefusedError, StoreTimeoutError, TransactionError
from penstock.tasks.task import Task
from tests.kit.waiting import PATIENCE


class Shop:
    """An app on the store: one task in a plain queue, one in a queue with limits."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.app = Penstock(f"{url}?answer_timeout=2s")
        self.send: Task[..., [str], None] = self.app.task(name="send")(_nothing)
        bounded = self.app.queue("bounded", max_length=5)
        self.tight: Task[..., [str], None] = bounded.task(name="tight")(_nothing)


def _nothing(to: str) -> None: ...


@pytest.fixture
def shop(url: str) -> Shop:
    """A shop on an empty store."""
    return Shop(url)


@asynccontextmanager
async def connected(url: str, **more: Any) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
    """A connection of the caller's."""
    connection = await psycopg.AsyncConnection.connect(url, **more)
    try:
        yield connection
    finally:
        await connection.close()


async def test_a_row_that_another_transaction_holds_is_not_waited_for_without_end(shop: Shop) -> None:
    """Nor is a key, or one of its kind; and the caller's own setting is as it was."""
    tasks: list[Any] = [shop.tight, shop.send.options(unique="live"), shop.send.options(idempotency_key="k")]
    async with asyncio.timeout(PATIENCE), shop.app, connected(shop.url) as first:
        for each in tasks:
            await each.enqueue_in(first, "ada")
            async with connected(shop.url) as second:
                with pytest.raises(StoreTimeoutError, match="locked"):
                    await each.enqueue_in(second, "ada")
            await first.rollback()
            await each.enqueue_in(first, "ada")
            [(limit,)] = await (await first.execute("SHOW lock_timeout")).fetchall()
            await first.commit()

            assert limit == "0"


async def test_a_wait_that_the_caller_has_bounded_himself_stays_so(shop: Shop) -> None:
    async with asyncio.timeout(PATIENCE), shop.app, connected(shop.url) as connection:
        await connection.execute("SET lock_timeout = '77ms'")
        await shop.tight.enqueue_in(connection, "ada")
        [(limit,)] = await (await connection.execute("SHOW lock_timeout")).fetchall()

    assert limit == "77ms"


async def test_a_database_without_the_tables_is_told_from_the_store(shop: Shop) -> None:
    """The message is about the connection, and not about the store, which is well."""
    async with shop.app, connected(f"{shop.url.rpartition('/')[0]}/template1") as connection:
        with pytest.raises(TransactionError, match="without the store's tables"):
            await shop.send.enqueue_in(connection, "ada")


async def test_a_read_only_transaction_is_refused(shop: Shop) -> None:
    async with shop.app, connected(shop.url) as connection:
        await connection.set_read_only(True)
        with pytest.raises(TransactionError, match="the transaction is read-only"):
            await shop.send.enqueue_in(connection, "ada")


async def test_a_user_without_the_rights_is_refused(shop: Shop) -> None:
    async with shop.app, connected(shop.url) as connection:
        await connection.execute("CREATE ROLE stranger")
        await connection.execute("SET ROLE stranger")
        with pytest.raises(TransactionError, match="grant"):
            await shop.send.enqueue_in(connection, "ada")


async def test_a_pipeline_is_refused(shop: Shop) -> None:
    """Nothing is answered there before it ends."""
    async with shop.app, connected(shop.url) as connection, connection.pipeline():
        with pytest.raises(TransactionError, match="pipeline"):
            await shop.send.enqueue_in(connection, "ada")


async def test_a_connection_that_has_not_all_letters_is_refused(shop: Shop) -> None:
    """Whether it would do depends on the arguments: the first that it cannot write fails."""
    async with shop.app, connected(shop.url, client_encoding="latin1") as connection:
        with pytest.raises(TransactionError, match="LATIN1; wanted UTF8"):
            await shop.send.enqueue_in(connection, "ada")


def test_a_session_without_a_connection_of_its_own_says_what_to_hand_over(shop: Shop) -> None:
    """Each of its classes may be in another database."""

    class Base(DeclarativeBase): ...

    class Order(Base):
        __tablename__ = "order_of_a_shop"
        n: Mapped[int] = mapped_column(primary_key=True)

    engine = create_engine(shop.url.replace("postgresql://", "postgresql+psycopg://"))
    with shop.app.blocking as queue, Session(binds={Order: engine}) as session, session.begin():
        with pytest.raises(TransactionError, match="bind_arguments"):
            queue.enqueue_in(session, shop.send, "ada")
        connection = session.connection(bind_arguments={"mapper": Order})
        queue.enqueue_in(connection, shop.send, "ada")
    engine.dispose()


async def test_of_many_jobs_it_is_told_how_many_were_not_taken_in(shop: Shop) -> None:
    """And nothing else of those that were."""
    async with shop.app, connected(shop.url) as connection:
        with pytest.raises(BatchRefusedError) as caught:
            await shop.tight.enqueue_many_in(connection, [(str(n),) for n in range(8)])

    assert str(caught.value) == (
        "3 of 8 jobs were not enqueued, the first: queue 'bounded' is full; the job was not enqueued"
    )
