"""Cursors in an event log whose numbers and times are not in its order."""

import json
from typing import Any

import psycopg
import pytest

from penstock.core.job import QueueRef
from penstock.stores.postgres import PostgresStore, events
from penstock.testing.conformance.arrange import enqueue, new_job
from tests.conformance.stores import opened

QUEUE = QueueRef("default", "q")


async def _out_of_order(store: PostgresStore, url: str) -> None:
    """In the order of the log: a is 1, late is 4 and an hour after all others, b is 2, c is 3."""
    async with await psycopg.AsyncConnection.connect(url) as late:
        await enqueue(store, QUEUE, [new_job("a")])
        await late.execute("SELECT pg_current_xact_id()")
        await enqueue(store, QUEUE, [new_job("b"), new_job("c")])
        await late.execute(
            "INSERT INTO penstock.event (queue, stamp, seq, at, move, job, version) "
            "SELECT n, pg_current_xact_id(), nextval(numbers), "
            "(SELECT max(at) FROM penstock.event) + 3600000, 'enqueue', 'late', 1 FROM penstock.queue"
        )
        await late.commit()


async def test_so_many_events_are_counted_in_the_order_of_the_log(url: str) -> None:
    """Not by their numbers."""
    store = PostgresStore(url)
    async with opened(store):
        await _out_of_order(store, url)
        events = await store.events.read_events(QUEUE)
        cursors = [event.cursor for event in events]
        reached = [await store.events.cursor_after(QUEUE, 0, many) for many in (1, 2, 3, 4, 5)]
        columns = await store.events.event_columns(QUEUE, cursors[0], cursors[2], 10)

    assert [event.seq for event in events] == [1, 4, 2, 3]
    assert reached == [*cursors, cursors[3]]
    assert list(columns.fields["job"]) == ["late", "b"]


async def test_no_event_of_a_time_stands_before_its_cursor(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the log goes back in time, and however far one statement walks."""
    store = PostgresStore(url)
    for walk in (1, 2, 100):
        monkeypatch.setattr(events, "_WALK", walk)
        async with opened(store):
            if not await store.events.read_events(QUEUE):
                await _out_of_order(store, url)
            found = await store.events.read_events(QUEUE)
            cursors = ["0", *(event.cursor for event in found)]
            times = (0, found[3].at + 1, found[1].at + 1)
            starts = [await store.events.cursor_at(QUEUE, at) for at in times]

        assert starts == [cursors[0], cursors[1], cursors[4]]


@pytest.mark.parametrize("statement", [events._FORWARD, events._BACKWARD])
async def test_where_a_range_ends_is_found_by_walking_the_index(url: str, statement: str) -> None:
    """Nothing is sorted, and the table is not looked at on the way."""
    async with opened(PostgresStore(url)):
        pass
    async with await psycopg.AsyncConnection.connect(url) as connection:
        for name in ("enable_seqscan", "enable_bitmapscan"):
            await connection.execute(f"SET {name} = off".encode())
        cursor = psycopg.AsyncRawCursor(connection)
        await cursor.execute(f"EXPLAIN (FORMAT JSON) {statement}".encode(), ["1", "5", "5", "-1", "1000"])
        [(plan,)] = await cursor.fetchall()
    found = json.dumps(plan)

    assert _nodes(plan).count("Index Only Scan") == 1, found
    assert "Sort" not in _nodes(plan), found


def _nodes(plan: Any) -> list[str]:
    if isinstance(plan, list):
        return [node for each in plan for node in _nodes(each)]
    if not isinstance(plan, dict):
        return []
    own = [plan["Node Type"]] if "Node Type" in plan else []
    return own + [node for each in plan.values() for node in _nodes(each)]
