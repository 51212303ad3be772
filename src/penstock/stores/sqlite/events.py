"""The event log in the file."""

import sqlite3
from typing import Any, Final

from penstock.core.cursors import Cursor, check_cursor, placed, read_cursor
from penstock.core.events import Event
from penstock.core.job import QueueRef
from penstock.stores.absent import answers_absent
from penstock.stores.bounds import DAMAGED_EVENT_LIMIT
from penstock.stores.corruption import corrupt_events, readable_events
from penstock.stores.rows import EVENT_COLUMNS
from penstock.stores.sqlite.backend import Backend
from penstock.stores.sqlite.codec import columns_of, event_from
from penstock.stores.sqlite.tolerant import fetch
from penstock.stores.values import DamagedEvent, EventColumns

_RANGE: Final = "SELECT n, trimmed + 1, seq FROM queue WHERE tenant = ? AND name = ?"

_COLUMNS: Final = "SELECT * FROM event WHERE queue = ? AND seq > ? AND seq <= ? ORDER BY seq LIMIT ?"
_CHUNK: Final = 1_000
_AT: Final = "SELECT at FROM event WHERE queue = ? AND seq >= ? ORDER BY seq LIMIT 1"


class SqliteEvents:
    """Events that were written, in the order of their numbers."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def read_events(self, queue: QueueRef, after: str | int = 0, limit: int = 1_000) -> list[Event]:
        """The events that follow."""
        cursor = read_cursor("after", after)

        def work(connection: sqlite3.Connection) -> list[Event]:
            number, first, last = range_of(connection, queue)
            find_event(connection, queue, cursor, number, first, last)
            after = cursor.seq
            while rows := _after(connection, number, after, limit):
                events = list(readable_events(queue, rows, lambda row: event_from(queue, row)))
                if events:
                    return [placed(event) for event in events]
                # None of them can be read: others may follow.
                after = rows[-1][0]
            return []

        return await self._backend.read(work)

    async def damaged_events(
        self, queue: QueueRef, after: int = 0, limit: int = DAMAGED_EVENT_LIMIT
    ) -> list[DamagedEvent]:
        """The events with higher numbers that cannot be read."""

        def work(connection: sqlite3.Connection) -> list[DamagedEvent]:
            number, _, _ = range_of(connection, queue)
            found, seq = list[DamagedEvent](), after
            while len(found) < limit and (rows := _after(connection, number, seq, _CHUNK)):
                found += corrupt_events([(row[0], row) for row in rows], lambda row: event_from(queue, row))
                seq = rows[-1][0]
            return found[: max(limit, 0)]

        return await self._backend.read(work)

    async def event_columns(
        self, queue: QueueRef, after: str | int, through: str, limit: int
    ) -> EventColumns:
        """The events that follow, up to a cursor, without a record of each."""
        cursor, end = read_cursor("after", after), read_cursor("through", through)

        def work(connection: sqlite3.Connection) -> EventColumns:
            number, first, last = range_of(connection, queue)
            find_event(connection, queue, cursor, number, first, last)
            return _between(connection, number, cursor.seq, end.seq, limit)

        return await self._backend.read(work)

    async def cursor_after(self, queue: QueueRef, after: str | int = 0, limit: int | None = None) -> str:
        """The cursor of the last of so many events that follow."""
        cursor = read_cursor("after", after)

        def work(connection: sqlite3.Connection) -> str:
            number, first, last = range_of(connection, queue)
            find_event(connection, queue, cursor, number, first, last)
            seq = last if limit is None else min(last, cursor.seq + limit)
            if seq < max(first, cursor.seq):
                return str(cursor)
            return str(_cursor(connection, queue, number, seq) or seq)

        return await self._backend.read(work)

    async def cursor_at(self, queue: QueueRef, at: int) -> str:
        """The cursor before a time, by halves: time does not go back from one number to the next."""

        def work(connection: sqlite3.Connection) -> str:
            number, first, last = range_of(connection, queue)
            low, high = first, last + 1
            while low < high:
                middle = (low + high) // 2
                row = connection.execute(_AT, (number, middle)).fetchone()
                # One that cannot be read counts as late: rather some events too many than too few.
                is_before = row is not None and isinstance(row[0], int) and row[0] < at
                low, high = (middle + 1, high) if is_before else (low, middle)
            found = None if low == first else _cursor(connection, queue, number, low - 1)
            return str(found or low - 1)

        return await self._backend.read(work)

    async def event_range(self, queue: QueueRef) -> tuple[int, int]:
        """The numbers of the oldest event kept and of the newest."""
        _, first, last = await self._backend.read(lambda connection: range_of(connection, queue))
        return first, last

    @answers_absent
    async def trim(self, queue: QueueRef, *, through: int) -> int:
        """Forget events up to this number."""
        return await self._backend.transact(
            queue, lambda transaction: transaction.trim(through), creates=False
        )


def range_of(connection: sqlite3.Connection, queue: QueueRef) -> tuple[int, int, int]:
    """The queue's row, 0 if it has none, and the numbers of its oldest event and of its newest."""
    row = connection.execute(_RANGE, (queue.tenant, queue.name)).fetchone()
    return (0, 1, 0) if row is None else tuple(row)


def find_event(
    connection: sqlite3.Connection, queue: QueueRef, cursor: Cursor, number: int, first: int, last: int
) -> Cursor | None:
    """The cursor of the event with the cursor's number, if it is kept; CursorLostError as for `events`."""
    there = _cursor(connection, queue, number, cursor.seq) if first <= cursor.seq <= last else None
    check_cursor(queue, cursor, first, last, there)
    return there


def _after(connection: sqlite3.Connection, number: int, after: int, limit: int) -> list[tuple[Any, ...]]:
    return fetch(
        connection,
        f"SELECT {EVENT_COLUMNS} FROM event WHERE queue = ? AND seq > ? ORDER BY seq LIMIT ?",  # noqa: S608 (constants)
        (number, after, max(limit, 0)),
    )


def _between(
    connection: sqlite3.Connection, number: int, after: int, through: int, limit: int
) -> EventColumns:
    found = connection.execute(_COLUMNS, (number, after, through, limit))
    return columns_of([name for name, *_ in found.description], found.fetchall())


def _cursor(connection: sqlite3.Connection, queue: QueueRef, number: int, seq: int) -> Cursor | None:
    """The cursor of the event with a number; None where somebody has taken it out of the file."""
    found = _between(connection, number, seq - 1, seq, 1)
    return read_cursor("cursor", found.cursors(queue)[0]) if found.count else None
