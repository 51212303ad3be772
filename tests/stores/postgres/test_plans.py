"""Plans that hold whatever the statistics say: those of an empty moment may stay for long."""

import json
import re
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from penstock.core.job import Options, QueueRef
from penstock.core.moves import Bury
from penstock.core.states import State
from penstock.stores.postgres import PostgresStore, event_pages, events, upkeep
from penstock.stores.postgres.reads import page_of
from penstock.stores.values import Query
from penstock.testing.conformance.arrange import FAULT, claim, enqueue, new_job
from tests.conformance.stores import opened

NAMED = re.compile(r"\b(id|job|key|parent|child) = ")
"""A comparison by which one row of a queue is meant."""


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for below in plan.get("Plans", ()):
        yield from _nodes(below)


async def _planned(connection: psycopg.AsyncConnection[Any], statement: str) -> list[dict[str, Any]]:
    """The nodes of the statement's plan that use an index."""
    await connection.execute(f"PREPARE given AS {statement}".encode())
    [(types,)] = await (
        await connection.execute("SELECT parameter_types FROM pg_prepared_statements WHERE name = 'given'")
    ).fetchall()
    nothing = ", ".join(["NULL"] * len(types))
    asked = (
        f"EXPLAIN (FORMAT JSON) EXECUTE given({nothing})" if types else "EXPLAIN (FORMAT JSON) EXECUTE given"
    )
    [(found,)] = await (await connection.execute(asked.encode())).fetchall()
    await connection.execute("DEALLOCATE given")
    [top] = found if isinstance(found, list) else json.loads(found)
    return [node for node in _nodes(top["Plan"]) if "Index Name" in node]


async def _walks(connection: psycopg.AsyncConnection[Any], statement: str) -> list[str]:
    """The indexes that the statement would walk through in search of a row that it knows by name."""
    return [
        f"{node['Index Name']}: {node['Filter']}"
        for node in await _planned(connection, statement)
        if NAMED.search(node.get("Filter", "")) and not NAMED.search(node.get("Index Cond", ""))
    ]


@pytest.mark.parametrize("moment", ["never analysed", "analysed while empty", "analysed with one job"])
async def test_no_move_walks_an_index_in_search_of_a_job_that_it_knows(url: str, moment: str) -> None:
    """In a queue of a million ended jobs that is the difference between a millisecond and minutes."""
    store = PostgresStore(f"{url}?schema=plans")
    async with (
        await psycopg.AsyncConnection.connect(url, autocommit=True) as operator,
        opened(store),
    ):
        try:
            if moment == "analysed with one job":
                await enqueue(store, QueueRef("default", "q"), [new_job("a")])
            if moment != "never analysed":
                tables = await operator.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'plans'")
                for (table,) in await tables.fetchall():
                    await operator.execute(f"VACUUM ANALYZE plans.{table}".encode())
            async with store.backend.engine.transaction() as connection:
                await connection.execute("SET LOCAL plan_cache_mode = force_generic_plan")
                found = {
                    name: walks
                    for name, statement in store.backend.sql.items()
                    if name.startswith("moves/") and (walks := await _walks(connection, statement))
                }
        finally:
            await operator.execute("DROP SCHEMA plans CASCADE")

    assert found == {}


@pytest.mark.parametrize("statement", [event_pages._AFTER_NUMBER, events._TRIM], ids=["read", "cut"])
async def test_reads_and_cuts_of_the_log_begin_where_it_was_cut_last(url: str, statement: str) -> None:
    """What was cut before may lie there for hours, if an old snapshot keeps vacuum from it."""
    store = PostgresStore(url)
    async with opened(store), store.backend.engine.transaction() as connection:
        await connection.execute("SET LOCAL plan_cache_mode = force_generic_plan")
        found = await _planned(connection, statement)
        conditions = [node["Index Cond"] for node in found if node["Index Name"] == "event_pkey"]

    assert conditions
    assert all(" stamp >= " in f" {each.replace('(', ' ')}" for each in conditions), conditions


@pytest.mark.parametrize("statement", [upkeep._PAGE, upkeep._NAMED], ids=["all queues", "some queues"])
async def test_what_is_due_is_read_from_the_ends_of_indexes(url: str, statement: str) -> None:
    """Idle queues cost a search in each index, and busy ones no more."""
    store = PostgresStore(url)
    async with opened(store), store.backend.engine.transaction() as connection:
        await connection.execute("SET LOCAL plan_cache_mode = force_generic_plan")
        found = {node["Index Name"] for node in await _planned(connection, statement)}

    indexes = {"job_delayed", "job_active", "schedule_due", "done_prune", "idempotency_until", "kind_left"}
    assert found >= indexes


_MANY_DEAD = """
INSERT INTO penstock.dead
SELECT (made.job).*
FROM (
    SELECT jsonb_populate_record(dead, jsonb_build_object('id', 'd' || n, 'ended_at', n)) AS job
    FROM penstock.dead CROSS JOIN generate_series(1, 3000) AS n
) AS made
"""


@pytest.mark.parametrize("after", [None, "2000/d2000"], ids=["first page", "later page"])
async def test_a_page_of_dead_letters_is_read_where_it_stands_in_their_index(
    url: str, after: str | None
) -> None:
    """However many jobs have ended otherwise, and however many pages came before."""
    store, queue = PostgresStore(url), QueueRef("default", "q")
    async with opened(store):
        await enqueue(store, queue, [new_job("a", options=Options(max_attempts=1))])
        [held] = await claim(store, queue)
        await store.moves.settle(queue, [Bury(held.id, held.token, FAULT)])
        await store.backend.engine.run(_MANY_DEAD)
        await store.backend.engine.run("ANALYZE penstock.dead")
        statement, _ = page_of(Query(states=frozenset({State.DEAD}), after=after))
        async with store.backend.engine.transaction() as connection:
            await connection.execute("SET LOCAL plan_cache_mode = force_generic_plan")
            [node] = await _planned(connection, statement)

    assert node["Index Name"] == "dead_ended"
    assert ("ended_at <=" in node["Index Cond"]) is (after is not None)


@pytest.mark.parametrize(
    ("states", "tables"),
    [
        ({State.PENDING, State.BLOCKED}, {"job"}),
        ({State.COMPLETED, State.FAILED}, {"done"}),
        ({State.COMPLETED, State.DEAD}, {"done", "dead"}),
        ({State.PENDING, State.DEAD}, {"job", "done", "dead"}),
    ],
)
async def test_a_page_is_looked_for_only_where_its_jobs_can_be(
    url: str, states: set[State], tables: set[str]
) -> None:
    """Those that wait may be few, and those that ended a million."""
    store = PostgresStore(url)
    async with opened(store), store.backend.engine.transaction() as connection:
        await connection.execute("SET LOCAL plan_cache_mode = force_generic_plan")
        found = await _planned(connection, page_of(Query(states=frozenset(states)))[0])

    assert {node["Index Name"].partition("_")[0] for node in found} == tables
