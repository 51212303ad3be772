"""The event log in the file, and its readers."""

import sqlite3
from typing import Any, Final

from penstock.core.cursors import Cursor, check_cursor, placed, read_cursor
from penstock.core.events import Event
from penstock.core.job import QueueRef
from penstock.core.names import check_name
from penstock.stores.absent import answers_absent
from penstock.stores.bounds import DAMAGED_EVENT_LIMIT, READER_LEASE_MS
from penstock.stores.damaged import readable, unreadable
from penstock.stores.rows import EVENT_COLUMNS
from penstock.stores.sqlite.records import columns_of, event_from
from penstock.stores.sqlite.tolerant import fetch
from penstock.stores.sqlite.turn import Turn
from penstock.stores.sqlite.turns import Turns
from penstock.stores.values import DamagedEvent, EventColumns, Reader

_RANGE: Final = "SELECT n, trimmed + 1, seq FROM queue WHERE tenant = ? AND name = ?"

_COLUMNS: Final = "SELECT * FROM event WHERE queue = ? AND seq > ? AND seq <= ? ORDER BY seq LIMIT ?"
_CHUNK: Final = 1_000
_AT: Final = "SELECT at FROM event WHERE queue = ? AND seq >= ? ORDER BY seq LIMIT 1"


class SqliteLog(Turns):
    """Events that were written, and who has read how far."""

    async def events(self, queue: QueueRef, after: str | int = 0, limit: int = 1_000) -> list[Event]:
        """The events that follow."""
        cursor = read_cursor("after", after)

        def work(connection: sqlite3.Connection) -> list[Event]:
            number, first, last = _range(connection, queue)
            _find(connection, queue, cursor, number, first, last)
            after = cursor.seq
            while rows := _after(connection, number, after, limit):
                events = list(readable(queue, rows, lambda row: event_from(queue, row)))
                if events:
                    return [placed(event) for event in events]
                # None of them can be read: others may follow.
                after = rows[-1][0]
            return []

        return await self._read(work)

    async def damaged_events(
        self, queue: QueueRef, after: int = 0, limit: int = DAMAGED_EVENT_LIMIT
    ) -> list[DamagedEvent]:
        """The events with higher numbers that cannot be read."""

        def work(connection: sqlite3.Connection) -> list[DamagedEvent]:
            number, _, _ = _range(connection, queue)
            found, seq = list[DamagedEvent](), after
            while len(found) < limit and (rows := _after(connection, number, seq, _CHUNK)):
                found += unreadable([(row[0], row) for row in rows], lambda row: event_from(queue, row))
                seq = rows[-1][0]
            return found[: max(limit, 0)]

        return await self._read(work)

    async def event_columns(
        self, queue: QueueRef, after: str | int, through: str, limit: int
    ) -> EventColumns:
        """The events that follow, up to a cursor, without a record of each."""
        cursor, end = read_cursor("after", after), read_cursor("through", through)

        def work(connection: sqlite3.Connection) -> EventColumns:
            number, first, last = _range(connection, queue)
            _find(connection, queue, cursor, number, first, last)
            return _between(connection, number, cursor.seq, end.seq, limit)

        return await self._read(work)

    async def cursor_after(self, queue: QueueRef, after: str | int = 0, limit: int | None = None) -> str:
        """The cursor of the last of so many events that follow."""
        cursor = read_cursor("after", after)

        def work(connection: sqlite3.Connection) -> str:
            number, first, last = _range(connection, queue)
            _find(connection, queue, cursor, number, first, last)
            seq = last if limit is None else min(last, cursor.seq + limit)
            if seq < max(first, cursor.seq):
                return str(cursor)
            return str(_cursor(connection, queue, number, seq) or seq)

        return await self._read(work)

    async def cursor_at(self, queue: QueueRef, at: int) -> str:
        """The cursor before a time, by halves: time does not go back from one number to the next."""

        def work(connection: sqlite3.Connection) -> str:
            number, first, last = _range(connection, queue)
            low, high = first, last + 1
            while low < high:
                middle = (low + high) // 2
                row = connection.execute(_AT, (number, middle)).fetchone()
                # One that cannot be read counts as late: rather some events too many than too few.
                is_before = row is not None and isinstance(row[0], int) and row[0] < at
                low, high = (middle + 1, high) if is_before else (low, middle)
            found = None if low == first else _cursor(connection, queue, number, low - 1)
            return str(found or low - 1)

        return await self._read(work)

    async def event_range(self, queue: QueueRef) -> tuple[int, int]:
        """The numbers of the oldest event kept and of the newest."""
        _, first, last = await self._read(lambda connection: _range(connection, queue))
        return first, last

    @answers_absent
    async def trim(self, queue: QueueRef, *, through: int) -> int:
        """Forget events up to this number."""
        return await self._turn(queue, lambda turn: turn.trim(through), makes=False)

    async def keep_reader(self, queue: QueueRef, name: str, cursor: str | int) -> Reader:
        """Register or renew a reader."""
        check_name("reader", name)
        given = read_cursor("cursor", cursor)

        def move(turn: Turn) -> Reader:
            _, first, last = _range(turn.connection, queue)
            there = _find(turn.connection, queue, given, turn.number, first, last)
            place = given if there is None else Cursor(given.seq, there.mark)
            reader = Reader(name, str(place), place.seq, turn.now + READER_LEASE_MS)
            turn.connection.execute(
                "INSERT OR REPLACE INTO reader (queue, name, cursor, seq, kept_until) VALUES (?, ?, ?, ?, ?)",
                (turn.number, reader.name, reader.cursor, reader.seq, reader.kept_until),
            )
            return reader

        return await self._turn(queue, move)

    async def readers(self, queue: QueueRef) -> list[Reader]:
        """The registered readers by name."""

        def work(connection: sqlite3.Connection) -> list[Reader]:
            number, _, _ = _range(connection, queue)
            rows = connection.execute(
                "SELECT name, cursor, seq, kept_until FROM reader WHERE queue = ? ORDER BY name", (number,)
            )
            return [Reader(*row) for row in rows]

        return await self._read(work)

    @answers_absent
    async def drop_reader(self, queue: QueueRef, name: str) -> bool:
        """Forget a reader; False when there was none."""

        def move(turn: Turn) -> bool:
            sql = "DELETE FROM reader WHERE queue = ? AND name = ?"
            return turn.connection.execute(sql, (turn.number, name)).rowcount > 0

        return await self._turn(queue, move, makes=False)

    @answers_absent
    async def forget_readers(self, queue: QueueRef) -> int:
        """Forget the readers whose lease is over."""

        def move(turn: Turn) -> int:
            sql = "DELETE FROM reader WHERE queue = ? AND kept_until <= ?"
            return turn.connection.execute(sql, (turn.number, turn.now)).rowcount

        return await self._turn(queue, move, makes=False)


def _range(connection: sqlite3.Connection, queue: QueueRef) -> tuple[int, int, int]:
    """The queue's row, 0 if it has none, and the numbers of its oldest event and of its newest."""
    row = connection.execute(_RANGE, (queue.tenant, queue.name)).fetchone()
    return (0, 1, 0) if row is None else tuple(row)


def _find(
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
