"""Deleting queues on PostgreSQL: transactions that stay open, walls between tenants, older schemas."""

import asyncio
from collections.abc import Iterator

import psycopg
import pytest

from penstock.core.errors import StoreUnavailableError, TransactionError
from penstock.core.job import QueueRef
from penstock.core.states import State
from penstock.stores.postgres import PostgresStore, deletion
from penstock.stores.postgres.sources import load_migrations
from penstock.stores.values import QueueContents
from penstock.testing.conformance.arrange import enqueue, new_job
from tests.conformance.stores import opened
from tests.stores.postgres.conftest import run
from tests.stores.postgres.waiting import until_it_waits

MAIL, SHOP = QueueRef("mail", "q"), QueueRef("shop", "q")
GONE = QueueContents()


@pytest.fixture
def walled(url: str) -> Iterator[str]:
    """The url of the owner of a schema with a wall between two tenants."""
    asyncio.run(_build(url))
    yield f"{url}?schema=walled"
    asyncio.run(run(url, "DROP SCHEMA walled CASCADE", "DROP ROLE mail_app", "DROP ROLE shop_app"))


async def _build(url: str) -> None:
    await run(url, "CREATE ROLE mail_app LOGIN", "CREATE ROLE shop_app LOGIN")
    async with opened(PostgresStore(f"{url}?schema=walled")) as owner:
        for queue in (MAIL, SHOP):
            await owner.queues.open_queue(queue)
    await run(url, "SELECT walled.admit('mail_app', 'mail')", "SELECT walled.admit('shop_app', 'shop')")


async def test_a_role_deletes_queues_of_its_own_tenants_only(walled: str) -> None:
    url = walled.partition("?")[0]
    store = PostgresStore(walled.replace("postgres@", "mail_app@", 1))
    async with opened(store), opened(PostgresStore(walled)) as owner:
        await enqueue(store, MAIL, [new_job("a")])
        await store.moves.delete(MAIL, ["a"])
        others = await store.queues.delete_queue(SHOP)
        own = await store.queues.delete_queue(MAIL)
        [(number,)] = await run(url, "SELECT n FROM walled.queue WHERE tenant = 'shop'")
        as_mail = url.replace("postgres@", "mail_app@", 1)
        # Nor does it learn that there is such a tenant.
        assert await run(as_mail, f"SELECT walled.delete_queue({number})") == [(False,)]
        for most in ("0", "NULL"):
            with pytest.raises(psycopg.errors.InvalidParameterValue, match="wanted at least 1 row"):
                await run(as_mail, f"SELECT walled.sweep_deleted({most})")
        again = await store.queues.open_queue(MAIL)
        left = [each.queue for tenant in ("mail", "shop") for each in await owner.queues.list_queues(tenant)]
        events = await run(url, "SELECT count(*) FROM walled.event")

    assert (others, own, again.number) == (None, GONE, 2)
    assert left == [MAIL, SHOP]
    assert events == [(0,)]


async def test_nothing_of_a_deleted_queue_is_left_in_the_tables(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many batches that takes; its sequence is gone as well."""
    monkeypatch.setattr(deletion, "SWEEP_LIMIT", 3)
    async with opened(PostgresStore(url)) as store:
        await enqueue(store, MAIL, [new_job(f"j{n}", idempotency_key=f"k{n}") for n in range(10)])
        await store.moves.delete(MAIL, [f"j{n}" for n in range(10)])
        await store.readers.register_reader(MAIL, "reader", 0)
        deleted = await store.queues.delete_queue(MAIL)
        counted = [
            await run(url, f"SELECT count(*) FROM penstock.{table}")
            for table in ("queue", "event", "idempotency", "reader", "deleted_queue")
        ]
        sequences = await run(url, "SELECT relname FROM pg_class WHERE relname LIKE 'number@_%' ESCAPE '@'")

    assert deleted == GONE
    assert counted == [[(0,)]] * 5
    assert sequences == []


async def test_a_function_of_the_schema_keeps_what_is_not_empty(url: str) -> None:
    """A caller need not have looked before."""
    async with opened(PostgresStore(url)) as store:
        await enqueue(store, MAIL, [new_job("a")])
        answers = await run(url, "SELECT penstock.delete_queue(n) FROM penstock.queue")

        assert answers == [(False,)]
        assert await store.queues.delete_queue(MAIL) == QueueContents({State.PENDING: 1})


@pytest.mark.parametrize("isolation", ["READ COMMITTED", "REPEATABLE READ"])
async def test_a_transaction_that_has_enqueued_keeps_the_queue(url: str, isolation: str) -> None:
    """The deletion waits until the transaction is over, and then finds the job."""
    store = PostgresStore(url)
    async with opened(store), opened(PostgresStore(url)) as other:
        await store.queues.open_queue(MAIL)
        async with await psycopg.AsyncConnection.connect(url) as connection:
            await connection.execute(f"BEGIN ISOLATION LEVEL {isolation}".encode())
            await store.enqueue_in(connection, MAIL, [new_job("a")], blocking=False)
            waited, deleting = await until_it_waits(url, other.queues.delete_queue(MAIL))
            await connection.commit()
        found = await deleting

        assert (waited, found) == (True, QueueContents({State.PENDING: 1}))
        assert (await store.reads.counts(MAIL))[State.PENDING] == 1


async def test_a_transaction_that_saw_the_queue_before_it_was_deleted_takes_no_job_in(url: str) -> None:
    """The job would be written into nowhere."""
    store = PostgresStore(url)
    async with opened(store), opened(PostgresStore(url)) as other:
        await store.queues.open_queue(MAIL)
        async with await psycopg.AsyncConnection.connect(url) as connection:
            await connection.execute(b"BEGIN ISOLATION LEVEL REPEATABLE READ")
            await connection.execute(b"SELECT count(*) FROM penstock.queue")
            deleted = await other.queues.delete_queue(MAIL)
            with pytest.raises(StoreUnavailableError, match="concurrent"):
                await store.enqueue_in(connection, MAIL, [new_job("a")], blocking=False)
            await connection.rollback()

        assert deleted == GONE
        assert await run(url, "SELECT count(*) FROM penstock.job") == [(0,)]


async def test_a_transaction_after_the_queue_was_deleted_is_told_to_open_it(url: str) -> None:
    """The next call of a client does."""
    store = PostgresStore(url)
    async with opened(store), opened(PostgresStore(url)) as other:
        await store.queues.open_queue(MAIL)
        await other.queues.delete_queue(MAIL)
        async with await psycopg.AsyncConnection.connect(url) as connection:
            with pytest.raises(TransactionError, match="was deleted since it was opened here"):
                await store.enqueue_in(connection, MAIL, [new_job("a")], blocking=False)
            await connection.rollback()
            known = store.is_opened(MAIL)
            await store.queues.open_queue(MAIL)
            await store.enqueue_in(connection, MAIL, [new_job("a")], blocking=False)
            await connection.commit()

        assert known is False
        assert (await other.reads.counts(MAIL))[State.PENDING] == 1


async def test_a_deletion_gives_up_where_transactions_stay_open(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It holds up nobody for longer than a moment, and the queue stays."""
    monkeypatch.setattr(deletion, "_TIMEOUT", 0.3)
    store = PostgresStore(url)
    async with opened(store):
        await store.queues.open_queue(MAIL)
        await store.queues.open_queue(SHOP)
        async with await psycopg.AsyncConnection.connect(url) as connection:
            await store.enqueue_in(connection, SHOP, [new_job("a")], blocking=False)
            with pytest.raises(StoreUnavailableError, match="transactions that write jobs stay open"):
                await store.queues.delete_queue(MAIL)
            await connection.commit()

        assert await store.queues.find_queue(MAIL) is not None
        assert await store.queues.delete_queue(MAIL) == GONE


async def test_queues_from_before_they_could_be_deleted_keep_their_numbers(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They have no mark of their making, and can be deleted; the next one has both a number and a mark."""
    migrations = load_migrations()
    older = migrations[: next(n for n, each in enumerate(migrations) if "penstock.deleted_queue" in each)]
    place = f"{url}?schema=older"
    with monkeypatch.context() as patched:
        patched.setattr("penstock.stores.postgres.migrate.load_migrations", lambda: older)
        async with opened(PostgresStore(place)) as store:
            await enqueue(store, MAIL, [new_job("a")])
    try:
        async with opened(PostgresStore(place)) as store:
            before = await store.queues.find_queue(MAIL)
            await store.moves.delete(MAIL, ["a"])
            deleted = await store.queues.delete_queue(MAIL)
            after = await store.queues.open_queue(MAIL)
    finally:
        await run(url, "DROP SCHEMA older CASCADE")

    assert before is not None
    assert (before.number, before.made) == (1, "")
    assert (deleted, after.number, bool(after.made)) == (GONE, 2, True)


async def test_deleting_a_queue_drops_its_own_sequence_whatever_its_row_names(url: str) -> None:
    """A role that writes the table may name any sequence there; the owner's rights drop only the queue's."""
    async with opened(PostgresStore(f"{url}?schema=baited")) as owner:
        await owner.queues.open_queue(MAIL)
        await run(
            url,
            "CREATE SEQUENCE invoices",
            "UPDATE baited.queue SET numbers = 'invoices'::regclass WHERE tenant = 'mail'",
        )
        deleted = await owner.queues.delete_queue(MAIL)
        left = await run(url, "SELECT count(*) FROM pg_class WHERE relname = 'invoices'")
        await run(url, "DROP SEQUENCE invoices", "DROP SCHEMA baited CASCADE")

    assert deleted == GONE
    assert left == [(1,)]
