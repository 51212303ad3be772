"""The order of ids, keys and names: by their bytes, whatever language the database speaks."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

import psycopg
import pytest

from penstock.core.errors import StoreError, StoreUnavailableError
from penstock.core.job import QueueRef
from penstock.core.moves import Complete
from penstock.core.outcomes import Applied, Enqueued
from penstock.core.states import State
from penstock.stores.postgres import PostgresStore
from penstock.stores.postgres.address import address_of
from penstock.stores.postgres.engine import Engine
from penstock.stores.postgres.migrate import bring_up
from penstock.stores.postgres.sources import load_migrations
from penstock.testing.conformance.arrange import claim, enqueue, new_job
from tests.conformance.stores import opened
from tests.stores.postgres.conftest import run
from tests.stores.postgres.waiting import until_it_waits

T = TypeVar("T")
QUEUE = QueueRef("default", "q")

# The state of ended jobs decides in which partition they lie; it does not distinguish two with the same id.
_INDEXED = """
SELECT DISTINCT relation.relname || '.' || attribute.attname
FROM pg_index
JOIN pg_class AS relation ON relation.oid = pg_index.indrelid
JOIN pg_attribute AS attribute
    ON attribute.attrelid = relation.oid AND attribute.attnum = ANY (pg_index.indkey)
WHERE relation.relnamespace = 'ordered'::regnamespace
    AND attribute.atttypid = 'text'::regtype
    AND attribute.attcollation <> 'pg_catalog."C"'::regcollation
    AND (attribute.attname <> 'state' OR relation.relname NOT IN ('ended', 'done', 'dead'))
"""


async def _insist(call: Callable[[], Awaitable[T]]) -> T:
    """As clients and workers do; connections that have prepared statements for the older tables end first."""
    for _ in range(5):
        with suppress(StoreUnavailableError):
            return await call()
    return await call()


async def test_no_index_follows_the_rules_of_a_language(url: str) -> None:
    """They differ between systems, and change with upgrades of them."""
    async with opened(PostgresStore(f"{url}?schema=ordered")):
        found = await run(url, _INDEXED)
    await run(url, "DROP SCHEMA ordered CASCADE")

    assert found == []


async def test_a_store_at_work_goes_on_while_the_order_changes(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the jobs it has."""
    place = f"{url}?schema=ordered"
    at_work = await _older(place, monkeypatch)
    try:
        await enqueue(at_work, QUEUE, [new_job("a"), new_job("B", idempotency_key="once"), new_job("c")])
        async with opened(PostgresStore(place)) as newer:
            # Claims and reads name a column that came later than the order.
            [first] = await _insist(lambda: claim(at_work, QUEUE, 1))
            [second] = await claim(newer, QUEUE, 1)
            ending = Complete(first.id, first.token, b"1")
            settled = await _insist(lambda: at_work.moves.settle(QUEUE, [ending]))
            taken = [job.id for job in await _insist(lambda: claim(at_work, QUEUE))]
            again = await newer.moves.enqueue(QUEUE, [new_job("d", idempotency_key="once")])
            records = [job and job.state for job in await newer.reads.get(QUEUE, ["a", "B", "c"])]
    finally:
        await at_work.close()
        await run(url, "DROP SCHEMA ordered CASCADE")

    assert (first.id, second.id, taken) == ("a", "B", ["c"])
    assert settled == [Applied(State.COMPLETED)]
    assert isinstance(again[0], Enqueued)
    assert again[0].id == "B"
    assert records == [State.COMPLETED, State.ACTIVE, State.ACTIVE]


_AS_IT_IS = """
SELECT pg_get_userbyid(relowner), relacl::text, obj_description(oid, 'pg_class'), (
    SELECT string_agg(attname || attacl::text, ' ' ORDER BY attname)
    FROM pg_attribute WHERE attrelid = pg_class.oid
)
FROM pg_class WHERE oid = 'ordered.record'::regclass
"""


async def test_the_view_stays_whose_it_was_and_who_may_look_at_it(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where somebody else migrates, and new tables would be granted to more."""
    roles = ("owns", "looks", "sees", "comes")
    await run(
        url, *(f"DROP ROLE IF EXISTS {role}" for role in roles), *(f"CREATE ROLE {role}" for role in roles)
    )
    await (await _older(f"{url}?schema=ordered", monkeypatch)).close()
    try:
        before = await run(
            url,
            "ALTER SCHEMA ordered OWNER TO owns",
            "ALTER VIEW ordered.record OWNER TO owns",
            "GRANT SELECT ON ordered.record TO looks WITH GRANT OPTION",
            "GRANT SELECT (id, state) ON ordered.record TO sees",
            "COMMENT ON VIEW ordered.record IS 'all of them'",
            "ALTER DEFAULT PRIVILEGES IN SCHEMA ordered GRANT ALL ON TABLES TO comes",
            _AS_IT_IS,
        )
        async with opened(PostgresStore(f"{url}?schema=ordered")):
            after = await run(url, _AS_IT_IS)
    finally:
        await run(url, "DROP SCHEMA ordered CASCADE", *(f"DROP OWNED BY {role}" for role in roles))
        await run(url, *(f"DROP ROLE {role}" for role in roles))

    assert len(before) == 1
    assert after == before


async def test_what_others_made_on_the_tables_is_named_and_stays(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await (await _older(f"{url}?schema=ordered", monkeypatch)).close()
    await run(url, "CREATE VIEW letters AS SELECT id FROM ordered.dead")
    try:
        with pytest.raises(StoreError, match=r"not Penstock's: public.letters; drop them, migrate"):
            await PostgresStore(f"{url}?schema=ordered").open()
        left = await run(url, "SELECT id FROM letters")
    finally:
        await run(url, "DROP SCHEMA ordered CASCADE")

    assert left == []


async def test_a_migration_waits_for_those_at_work_and_not_the_other_way_round(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who holds a table for seconds, and wants the next one, gets it."""
    place = f"{url}?schema=ordered"
    await (await _older(place, monkeypatch)).close()
    try:
        async with await psycopg.AsyncConnection.connect(url) as held:
            # On a busy machine the migration may notice late that it has waited long enough.
            await held.execute("SET LOCAL deadlock_timeout = '60s'")
            await held.execute("SELECT 1 FROM ordered.schedule")
            store = PostgresStore(place)
            waited, opening = await until_it_waits(url, store.open())
            await held.execute("SELECT 1 FROM ordered.queue")
            await held.commit()
        await opening
        await store.close()
        [(version,)] = await run(url, "SELECT value FROM ordered.meta WHERE name = 'schema_version'")
    finally:
        await run(url, "DROP SCHEMA ordered CASCADE")

    assert waited
    assert version == len(load_migrations())


async def test_a_migration_gives_up_before_the_server_looks_for_deadlocks(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the server might end a transaction of those at work instead."""
    place = f"{url}?schema=ordered"
    await (await _older(place, monkeypatch)).close()
    engine = Engine(address_of(place))
    await engine.open()
    try:
        async with engine.transaction() as connection:
            await bring_up(connection, engine, may_start_again=False)
            found = await connection.execute(
                "SELECT current_setting('lock_timeout')::interval * 2, "
                "current_setting('deadlock_timeout')::interval"
            )
            [(twice_the_wait, deadlock_timeout)] = await found.fetchall()
    finally:
        await engine.close()
        await run(url, "DROP SCHEMA ordered CASCADE")

    assert twice_the_wait == deadlock_timeout


async def _older(place: str, monkeypatch: pytest.MonkeyPatch) -> PostgresStore:
    """An open store whose schema is from before the order was changed."""
    older = load_migrations()[:6]
    store = PostgresStore(place)
    with monkeypatch.context() as patched:
        patched.setattr("penstock.stores.postgres.migrate.load_migrations", lambda: older)
        await store.open()
    return store
