"""The order of ids, keys and names: by their bytes, whatever language the database speaks."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

import psycopg
import pytest

from penstock.core.errors import StoreUnavailableError
from penstock.core.job import QueueRef
from penstock.core.moves import Complete
from penstock.core.outcomes import Applied, Enqueued
from penstock.core.states import State
from penstock.stores.postgres import PostgresStore
from penstock.stores.postgres.sources import load_migrations
from tests.conformance.arrange import claim, enqueue, new_job
from tests.conformance.stores import opened

T = TypeVar("T")
QUEUE = QueueRef("default", "q")

# The state of ended jobs decides in which partition they lie; no two with the same id are told apart by it.
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


async def _run(url: str, *statements: str) -> list[tuple[object, ...]]:
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        found: list[tuple[object, ...]] = []
        for each in statements:
            cursor = await connection.execute(each.encode())
            found = await cursor.fetchall() if cursor.description else []
        return found


async def _insist(call: Callable[[], Awaitable[T]]) -> T:
    """As clients and workers do; connections that have prepared statements for the older tables end first."""
    for _ in range(5):
        with suppress(StoreUnavailableError):
            return await call()
    return await call()


async def test_no_index_follows_the_rules_of_a_language(url: str) -> None:
    """They differ between systems, and change with upgrades of them."""
    async with opened(PostgresStore(f"{url}?schema=ordered")):
        found = await _run(url, _INDEXED)
    await _run(url, "DROP SCHEMA ordered CASCADE")

    assert found == []


async def test_a_store_at_work_goes_on_while_the_order_changes(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the jobs it has, and whoever may read the view still may."""
    place, older = f"{url}?schema=ordered", load_migrations()[:5]
    with monkeypatch.context() as patched:
        patched.setattr("penstock.stores.postgres.migrate.load_migrations", lambda: older)
        at_work = PostgresStore(place)
        await at_work.open()
    try:
        await enqueue(at_work, QUEUE, [new_job("a"), new_job("B", idempotency_key="once"), new_job("c")])
        [first] = await claim(at_work, QUEUE, 1)
        await _run(url, "CREATE ROLE looks", "GRANT SELECT ON ordered.record TO looks")
        async with opened(PostgresStore(place)) as newer:
            [second] = await claim(newer, QUEUE, 1)
            ending = Complete(first.id, first.token, b"1")
            settled = await _insist(lambda: at_work.settle(QUEUE, [ending]))
            taken = [job.id for job in await _insist(lambda: claim(at_work, QUEUE))]
            again = await newer.enqueue(QUEUE, [new_job("d", idempotency_key="once")])
            records = [job and job.state for job in await newer.get(QUEUE, ["a", "B", "c"])]
        [(may_look,)] = await _run(url, "SELECT has_table_privilege('looks', 'ordered.record', 'SELECT')")
    finally:
        await at_work.close()
        await _run(url, "DROP SCHEMA ordered CASCADE", "DROP ROLE IF EXISTS looks")

    assert (first.id, second.id, taken) == ("a", "B", ["c"])
    assert settled == [Applied(State.COMPLETED)]
    assert isinstance(again[0], Enqueued)
    assert again[0].id == "B"
    assert records == [State.COMPLETED, State.ACTIVE, State.ACTIVE]
    assert may_look
