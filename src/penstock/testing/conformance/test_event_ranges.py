"""Stretches of the event log: where they end, where those of a time begin, and what they hold."""

import msgspec
import pytest

from penstock.core.errors import CursorLostError, OptionError
from penstock.core.events import Event
from penstock.core.job import QueueRef
from penstock.core.moves import Bury, Complete
from penstock.stores.protocol import Store
from penstock.stores.values import EventColumns
from penstock.testing.conformance.arrange import (
    FAULT,
    claim,
    claim_one,
    enqueue,
    enqueue_each,
    new_job,
    settle,
)
from penstock.testing.conformance.parts import Part, needs

pytestmark = needs(Part.EVENT_RANGES)

FIELDS = [
    each.name for each in msgspec.structs.fields(Event) if each.name not in {"tenant", "queue", "cursor"}
]


async def _events(store: Store, queue: QueueRef) -> list[Event]:
    """All of them, also those that were written just now."""
    return await store.events.read_events(queue)


def _rows(columns: EventColumns) -> list[tuple[object, ...]]:
    nothing = [None] * columns.count
    return list(zip(*(columns.fields.get(name, nothing) for name in FIELDS), strict=True))


async def _make_history(store: Store, queue: QueueRef) -> None:
    await enqueue(store, queue, [new_job(f"j{n}", key="a\\key", idempotency_key=f"i{n}\0") for n in range(4)])
    await enqueue(store, queue, [new_job("later", delay_ms=1_000, priority=0)])
    held = await claim_one(store, queue)
    await settle(store, queue, Complete(held.id, held.token))
    held = await claim_one(store, queue)
    await settle(store, queue, Bury(held.id, held.token, FAULT))
    await store.moves.delete(queue, ["j2", "j3"])


async def test_so_many_events_end_at_the_cursor_of_the_last(store: Store, queue: QueueRef) -> None:
    """From wherever one begins; with fewer events than were asked for it is that of the newest."""
    await enqueue(store, queue, [new_job(f"j{n}") for n in range(7)])
    cursors = [event.cursor for event in await _events(store, queue)]

    assert await store.events.cursor_after(queue, 0, 1) == cursors[0]
    assert await store.events.cursor_after(queue, cursors[1], 3) == cursors[4]
    assert await store.events.cursor_after(queue, 2, 3) == cursors[4]
    assert await store.events.cursor_after(queue, cursors[1], 99) == cursors[6]
    assert await store.events.cursor_after(queue) == cursors[6]
    assert await store.events.cursor_after(queue, cursors[3]) == cursors[6]


async def test_where_nothing_follows_the_cursor_stays(store: Store, queue: QueueRef) -> None:
    """In full where its event is kept; and what does not exist yet has no end but its beginning."""
    nothing = await store.events.cursor_after(queue)
    await enqueue_each(store, queue, [new_job(f"j{n}") for n in range(3)])
    cursors = [event.cursor for event in await _events(store, queue)]
    await store.events.trim(queue, through=1)

    assert nothing == "0"
    assert await store.events.cursor_after(queue, cursors[2]) == cursors[2]
    assert await store.events.cursor_after(queue, cursors[2], 5) == cursors[2]
    assert await store.events.cursor_after(queue, 2, 0) == cursors[1]
    assert await store.events.cursor_after(queue, 1, 0) == "1"
    await store.events.trim(queue, through=3)
    assert await store.events.cursor_after(queue, 3) == "3"


async def test_a_range_begins_at_no_cursor_that_is_lost(store: Store, queue: QueueRef) -> None:
    """As it is with reading events."""
    other = QueueRef(queue.tenant, "other")
    await enqueue_each(store, queue, [new_job(f"j{n}") for n in range(6)])
    await enqueue(store, other, [new_job("x")])
    cursors = [event.cursor for event in await _events(store, queue)]
    await store.events.trim(queue, through=4)

    for lost in (cursors[1], 2):
        with pytest.raises(CursorLostError, match="events 3 to 4 of"):
            await store.events.cursor_after(queue, lost, 3)
        with pytest.raises(CursorLostError, match="events 3 to 4 of"):
            await store.events.event_columns(queue, lost, cursors[5], 10)
    with pytest.raises(CursorLostError, match="another one"):
        await store.events.cursor_after(other, cursors[0])
    with pytest.raises(CursorLostError, match="beyond"):
        await store.events.event_columns(other, cursors[5], cursors[5], 10)
    with pytest.raises(OptionError, match="wanted the cursor of an event"):
        await store.events.cursor_after(queue, "x")
    with pytest.raises(OptionError, match="wanted the cursor of an event"):
        await store.events.event_columns(queue, 0, "x", 1)


async def test_columns_have_what_the_records_have(store: Store, queue: QueueRef) -> None:
    """Every field of every event, and the cursors."""
    await _make_history(store, queue)
    events = await _events(store, queue)
    columns = await store.events.event_columns(queue, 0, events[-1].cursor, 100)

    assert _rows(columns) == [tuple(getattr(event, name) for name in FIELDS) for event in events]
    assert columns.cursors(queue) == [event.cursor for event in events]
    assert (columns.count, dict(columns.unknown), dict(columns.broken)) == (len(events), {}, {})


async def test_a_range_of_any_length_begins_and_ends_within_what_one_call_wrote(
    store: Store, queue: QueueRef
) -> None:
    """Its records, columns and cursors are those of the whole."""
    await enqueue(store, queue, [new_job(f"j{n}", key=f"k{n % 2}") for n in range(4)])
    held = await claim(store, queue, 3)
    await store.moves.settle(queue, [Complete(job.id, job.token) for job in held])
    events = await _events(store, queue)
    cursors = ["0", *(event.cursor for event in events)]

    for first in range(len(events) + 1):
        for length in range(1, 4):
            there = events[first : first + length]
            last = cursors[min(first + length, len(events))]
            columns = await store.events.event_columns(queue, cursors[first], cursors[-1], length)
            assert _rows(columns) == [tuple(getattr(event, name) for name in FIELDS) for event in there]
            assert columns.cursors(queue) == [event.cursor for event in there]
            assert (await store.events.event_columns(queue, cursors[first], last, 99)).count == len(there)
            assert await store.events.read_events(queue, cursors[first], length) == there
            if there:
                assert await store.events.cursor_after(queue, cursors[first], length) == last


async def test_columns_end_where_they_should(store: Store, queue: QueueRef) -> None:
    """At the cursor that was named, or after so many; whatever has come since."""
    await enqueue(store, queue, [new_job(f"j{n}") for n in range(6)])
    cursors = [event.cursor for event in await _events(store, queue)]
    await enqueue(store, queue, [new_job("later")])
    found = await store.events.event_columns(queue, cursors[1], cursors[4], 100)
    limited = await store.events.event_columns(queue, cursors[1], cursors[4], 2)
    empty = await store.events.event_columns(queue, cursors[4], cursors[4], 100)
    unknown = await store.events.event_columns(QueueRef(queue.tenant, "unknown"), 0, "0", 100)

    assert found.cursors(queue) == cursors[2:5]
    assert limited.cursors(queue) == cursors[2:4]
    assert (empty.count, empty.cursors(queue)) == (0, [])
    assert unknown.count == 0


async def test_the_events_of_a_time_are_found(store: Store, queue: QueueRef) -> None:
    """None of that time or later comes before the cursor, also where the log was trimmed."""
    for n in range(5):
        await enqueue(store, queue, [new_job(f"j{n}")])
        await store.clock.advance_clock(1_000)
    events = await _events(store, queue)
    cursors = ["0", *(event.cursor for event in events)]
    exact = [await store.events.cursor_at(queue, event.at) for event in events]
    between = [await store.events.cursor_at(queue, event.at + 1) for event in events]
    await store.events.trim(queue, through=2)

    assert exact == cursors[:-1]
    assert between == cursors[1:]
    assert await store.events.cursor_at(queue, 0) == "2"
    assert await store.events.cursor_at(queue, events[4].at) == cursors[4]
    assert await store.events.cursor_at(QueueRef(queue.tenant, "unknown"), 5) == "0"
