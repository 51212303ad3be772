"""Statements of the store use the server's own functions and operators, whatever stands in public."""

import asyncio
from collections.abc import Iterator

import psycopg
import pytest

from penstock.core.job import QueueRef
from penstock.core.moves import Complete
from penstock.core.unique import Unique, UniqueRule
from penstock.stores.outbox import OUTBOX_SCHEMA
from penstock.stores.postgres import PostgresStore
from penstock.stores.postgres.migrate import script
from penstock.stores.postgres.outbox import PostgresOutbox, write
from penstock.stores.postgres.owner import SchemaOwner
from penstock.stores.values import Pause
from penstock.testing.conformance.arrange import claim_one, enqueue, new_job
from tests.conformance.stores import opened
from tests.stores.postgres.conftest import run

QUEUE = QueueRef("default", "q")

# What every role could create in public before PostgreSQL 15. Each fits the types of some call better than
# what the server has, and notes that it ran.
_TRAPS = [
    "CREATE TABLE public.caught (what text, whose text)",
    "GRANT INSERT ON public.caught TO PUBLIC",
    """
    CREATE FUNCTION public.format(text, regclass, name) RETURNS text LANGUAGE plpgsql AS $$
    BEGIN
        INSERT INTO public.caught VALUES ('format', current_user);
        RETURN pg_catalog.format($1, $2, $3);
    END $$
    """,
    """
    CREATE FUNCTION public.unnest(text[]) RETURNS SETOF text LANGUAGE plpgsql AS $$
    BEGIN
        INSERT INTO public.caught VALUES ('unnest', current_user);
        RETURN QUERY SELECT pg_catalog.unnest($1);
    END $$
    """,
    """
    CREATE FUNCTION public.multiply(numeric, integer) RETURNS numeric LANGUAGE plpgsql AS $$
    BEGIN
        INSERT INTO public.caught VALUES ('multiply', current_user);
        RETURN $1 OPERATOR(pg_catalog.*) $2::numeric;
    END $$
    """,
    "CREATE OPERATOR public.* (LEFTARG = numeric, RIGHTARG = integer, FUNCTION = public.multiply)",
]


@pytest.fixture
def trapped(url: str) -> Iterator[str]:
    """The url of a database where somebody has put functions and an operator into public."""
    asyncio.run(run(url, *_TRAPS))
    yield url
    asyncio.run(
        run(
            url,
            "DROP SCHEMA IF EXISTS trapped CASCADE",
            f"DROP SCHEMA IF EXISTS {OUTBOX_SCHEMA} CASCADE",
            "DROP OPERATOR public.* (numeric, integer)",
            "DROP FUNCTION public.multiply, public.unnest, public.format",
            "DROP TABLE public.caught",
        )
    )


async def caught(url: str) -> list[tuple[object, ...]]:
    """Which of the functions in public ran, and as whom."""
    return await run(url, "SELECT DISTINCT what, whose FROM public.caught ORDER BY what")


@pytest.mark.parametrize("pooler", ["none", "transaction"])
async def test_a_store_runs_nothing_that_stands_in_public(trapped: str, pooler: str) -> None:
    """Neither when it makes its tables nor when it uses them."""
    store = PostgresStore(f"{trapped}?schema=trapped&pooler={pooler}")
    async with opened(store):
        await enqueue(store, QUEUE, [new_job("a", unique=Unique("k", UniqueRule.LIVE)), new_job("b")])
        job = await claim_one(store, QUEUE)
        await store.moves.settle(QUEUE, [Complete(job.id, job.token)])
        await store.queues.pause_queue(QUEUE, Pause(at=0))
        await store.health.check(QUEUE)
        await store.health.info()
        await store.clock.now()

    assert await caught(trapped) == []


@pytest.mark.parametrize("pooler", ["none", "transaction"])
async def test_a_migration_runs_nothing_that_stands_in_public(trapped: str, pooler: str) -> None:
    owner = SchemaOwner(f"{trapped}?schema=trapped&pooler={pooler}")
    await owner.look()
    await owner.up(["postgres"])
    await owner.look()

    assert await caught(trapped) == []


async def test_the_printed_migration_runs_nothing_that_stands_in_public(trapped: str) -> None:
    """Whatever the search_path of the session that it is pasted into."""
    async with await psycopg.AsyncConnection.connect(trapped, autocommit=True) as connection:
        await connection.execute(script("trapped", 0).encode())
        after = await (await connection.execute("SHOW search_path")).fetchone()

    assert await caught(trapped) == []
    assert after == ('"$user", public',)


@pytest.mark.parametrize("is_unique", [False, True])
async def test_an_enqueue_in_the_callers_transaction_runs_nothing_that_stands_in_public(
    trapped: str, is_unique: bool
) -> None:
    """And leaves the caller's search_path as it was: also where it was set for the transaction alone."""
    store = PostgresStore(f"{trapped}?schema=trapped")
    unique = Unique("k", UniqueRule.LIVE) if is_unique else None
    paths: list[object] = []
    async with opened(store), await psycopg.AsyncConnection.connect(trapped) as connection:
        await store.queues.open_queue(QUEUE)
        await connection.execute("SET LOCAL search_path = public, pg_catalog")
        for name in ("a", "a", "b"):
            await store.enqueue_in(connection, QUEUE, [new_job(name, unique=unique)], blocking=False)
            paths.append(await (await connection.execute("SHOW search_path")).fetchone())
        await connection.commit()
        paths.append(await (await connection.execute("SHOW search_path")).fetchone())

    assert paths == [("public, pg_catalog",)] * 3 + [('"$user", public',)]
    assert await caught(trapped) == []


async def test_an_outbox_runs_nothing_that_stands_in_public(trapped: str) -> None:
    outbox = PostgresOutbox(trapped)
    await outbox.open()
    try:
        async with await psycopg.AsyncConnection.connect(trapped) as connection:
            await write(connection, OUTBOX_SCHEMA, QUEUE, "{}", blocking=False)
        async with outbox.next_batch(10, []) as entries:
            found = [] if entries is None else entries.entries
        await outbox.state(10)
    finally:
        await outbox.close()

    assert len(found) == 1
    assert await caught(trapped) == []
