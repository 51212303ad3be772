"""Opening: what is refused, what is made, and what is never shown."""

import asyncio

import psycopg
import pytest

from penstock.core.errors import (
    ConfigError,
    StoreFormatError,
    StoreTimeoutError,
    StoreUnavailableError,
    StoreVersionError,
)
from penstock.core.job import QueueRef
from penstock.stores.open import open_store
from penstock.stores.postgres import PostgresStore
from penstock.stores.postgres.sources import load_migrations
from penstock.stores.values import Topic
from penstock.testing.conformance.arrange import claim, enqueue, new_job
from tests.conformance.stores import opened
from tests.kit.waiting import PATIENCE
from tests.stores.postgres.conftest import run

QUEUE = QueueRef("default", "q")


async def test_many_open_an_empty_schema_at_once(url: str) -> None:
    """One of them makes it."""
    await run(url, "DROP SCHEMA IF EXISTS fresh CASCADE")
    stores = [PostgresStore(f"{url}?schema=fresh") for _ in range(5)]
    await asyncio.gather(*(store.open() for store in stores))
    await enqueue(stores[0], QUEUE, [new_job("a")])
    found = await claim(stores[1], QUEUE)
    info = await stores[2].health.info()
    for store in stores:
        await store.close()
    await run(url, "DROP SCHEMA fresh CASCADE")

    assert [job.id for job in found] == ["a"]
    assert info.schema_version == len(load_migrations())


async def test_a_newer_schema_is_refused(url: str) -> None:
    """Nothing is written then."""
    store = PostgresStore(f"{url}?schema=newer")
    async with opened(store):
        pass
    await run(url, "UPDATE newer.meta SET value = 99 WHERE name = 'schema_version'")

    with pytest.raises(StoreVersionError, match="99"):
        await PostgresStore(f"{url}?schema=newer").open()
    await run(url, "DROP SCHEMA newer CASCADE")


async def test_a_schema_with_other_tables_is_refused(url: str) -> None:
    """They are somebody else's."""
    await run(url, "CREATE SCHEMA theirs", "CREATE TABLE theirs.job (n int)")

    with pytest.raises(StoreFormatError, match="theirs"):
        await PostgresStore(f"{url}?schema=theirs").open()
    await run(url, "DROP SCHEMA theirs CASCADE")


@pytest.mark.parametrize("schema", ["pg_mine", "Two Words", 'a"b', ""])
def test_a_schema_has_a_plain_name(schema: str) -> None:
    with pytest.raises(ConfigError, match="schema"):
        open_store(f"postgresql://localhost/jobs?schema={schema}")


async def test_a_server_that_is_not_there_is_unavailable_and_its_password_is_not_shown() -> None:
    """Neither in the message nor in what the store says of itself."""
    store = PostgresStore("postgresql://me:s3cret@127.0.0.1:1/jobs")
    with pytest.raises(StoreUnavailableError) as caught:
        await store.open()

    assert "s3cret" not in str(caught.value)
    assert "me@127.0.0.1:1" in str(caught.value)


async def test_an_unknown_database_is_a_matter_of_configuration(url: str) -> None:
    with pytest.raises(ConfigError, match="nowhere"):
        await PostgresStore(url.replace("/postgres", "/nowhere")).open()


async def test_a_row_that_stays_locked_ends_the_call_in_time(url: str) -> None:
    """And nothing was changed."""
    store = PostgresStore(f"{url}?answer_timeout=2s")
    async with opened(store):
        await enqueue(store, QUEUE, [new_job("a")])
        async with await psycopg.AsyncConnection.connect(url) as other:
            await other.execute("SELECT 1 FROM penstock.job FOR UPDATE")
            with pytest.raises(StoreTimeoutError):
                await store.moves.cancel(QUEUE, ["a"])
        found = await claim(store, QUEUE)

    assert [job.id for job in found] == ["a"]


async def test_behind_a_transaction_pooler_subscriptions_notify_by_the_clock(url: str) -> None:
    """Nobody can listen there, and nothing is prepared."""
    store = PostgresStore(f"{url}?pooler=transaction")
    async with opened(store), store.notifier.subscribe(QUEUE, Topic.READY) as subscription:
        is_notified = await subscription.wait(PATIENCE)
        await enqueue(store, QUEUE, [new_job("a")])
        found = await claim(store, QUEUE)

    assert is_notified
    assert [job.id for job in found] == ["a"]
