"""The event log: in an order to which nothing is added behind a reader.

Events are ordered by their stamp, then by their number; see the table. Only those with a stamp below every
running transaction are read: all of them are there by then, whenever they were committed.
"""

import asyncio
import time
from typing import Final

import msgspec

from penstock.core.cursors import Cursor, check_cursor, read_cursor, trimmed_error
from penstock.core.errors import CursorLostError
from penstock.core.events import Event
from penstock.core.job import QueueRef
from penstock.stores.bounds import DAMAGED_EVENT_LIMIT
from penstock.stores.damaged import readable, unreadable
from penstock.stores.postgres.claims import PostgresClaims
from penstock.stores.postgres.engine import Row
from penstock.stores.postgres.records import columns_of, event_from
from penstock.stores.postgres.renumbering import renumbers
from penstock.stores.rows import EVENT_COLUMNS
from penstock.stores.values import DamagedEvent

_RUNNING: Final = """
SELECT pg_snapshot_xmin(seen)::text::bigint, pg_snapshot_xmax(seen)::text::bigint
FROM pg_current_snapshot() AS seen
"""
_HEAD: Final = 5
_LOOK_SECONDS: Final = 0.0025

# The place of the cut, the transactions that run and the events come in one look: what was trimmed before it
# cannot be missed. A cursor's own event comes first.
_PAGE: Final = f"""
SELECT
    queue.trimmed_stamp::text::bigint, queue.trimmed_seq, queue.trimmed,
    pg_snapshot_xmin(seen)::text::bigint, pg_snapshot_xmax(seen)::text::bigint, page.*
FROM penstock.queue
CROSS JOIN pg_current_snapshot() AS seen
LEFT JOIN LATERAL (
    SELECT event.stamp::text::bigint, {EVENT_COLUMNS}
    FROM penstock.event
    WHERE event.queue = $1
        AND {{place}}
        AND event.stamp < pg_snapshot_xmin(pg_current_snapshot())
    ORDER BY event.stamp, event.seq
    LIMIT $2::bigint
) AS page ON true
WHERE queue.n = $1
"""  # noqa: S608 (constants)
_AFTER_CURSOR: Final = _PAGE.format(place="(event.stamp, event.seq) >= ($3::xid8, $4::bigint)")
# After the number up to which all was cut come all that are there, also those with a lower number. Entries in
# the index of what was cut may lie before it for long: they are not walked over.
_AFTER_NUMBER: Final = _PAGE.format(
    place="event.stamp >= queue.trimmed_stamp AND (event.seq > $3::bigint OR queue.trimmed = $3::bigint)"
)

_NUMBERED: Final = f"""
SELECT event.stamp::text::bigint, {EVENT_COLUMNS}
FROM penstock.event
WHERE event.queue = $1 AND event.seq = $2::bigint AND event.stamp < pg_snapshot_xmin(pg_current_snapshot())
"""  # noqa: S608 (constants)

# The last event need not have the highest number: a transaction may begin before thousands of others and take
# its numbers after them.
_NEWEST: Final = 10_000
_CHUNK: Final = 1_000
_BY_NUMBER: Final = f"""
SELECT {EVENT_COLUMNS} FROM penstock.event WHERE queue = $1 AND seq > $2::bigint ORDER BY seq LIMIT $3::bigint
"""  # noqa: S608 (constants)
_RANGE: Final = f"""
SELECT queue.trimmed + 1, greatest(queue.trimmed, (
    SELECT max(newest.seq)
    FROM (
        SELECT event.seq FROM penstock.event
        WHERE event.queue = $1 AND event.stamp < pg_snapshot_xmin(pg_current_snapshot())
        ORDER BY event.stamp DESC, event.seq DESC
        LIMIT {_NEWEST}
    ) AS newest
))
FROM penstock.queue
WHERE queue.n = $1
"""  # noqa: S608 (constants)

# Up to the first event that has a higher number, or that cannot be read yet: nobody who was given a number
# up to this one, and stands there, has anything before it left to read.
_TRIM: Final = """
WITH cut AS MATERIALIZED (SELECT queue.trimmed_stamp AS stamp FROM penstock.queue WHERE queue.n = $1),
stop AS MATERIALIZED (
    SELECT stamp, seq
    FROM (
        (
            SELECT event.stamp, event.seq FROM penstock.event
            WHERE event.queue = $1 AND event.stamp >= (SELECT cut.stamp FROM cut) AND event.seq > $2::bigint
            ORDER BY event.stamp, event.seq
            LIMIT 1
        )
        UNION ALL
        SELECT pg_snapshot_xmin(pg_current_snapshot()), 0
    ) AS edge
    ORDER BY edge.stamp, edge.seq
    LIMIT 1
),
gone AS (
    DELETE FROM penstock.event USING stop
    WHERE event.queue = $1
        AND event.stamp >= (SELECT cut.stamp FROM cut)
        AND (event.stamp, event.seq) < (stop.stamp, stop.seq)
    RETURNING event.stamp, event.seq
),
kept AS (
    UPDATE penstock.queue SET trimmed_stamp = last.stamp, trimmed_seq = last.seq, trimmed = last.number
    FROM (
        SELECT gone.stamp, gone.seq, max(gone.seq) OVER () AS number
        FROM gone
        ORDER BY gone.stamp DESC, gone.seq DESC
        LIMIT 1
    ) AS last
    WHERE queue.n = $1
)
SELECT count(*) FROM gone
"""


class Look(msgspec.Struct, frozen=True):
    """Events that were found; `awaits` is set while transactions before that number were running."""

    events: list[Event]
    awaits: int | None = None
    last: str | None = None
    """The cursor of the last one, also where it cannot be read."""


class PostgresLog(PostgresClaims):
    """Events that were written. An event's cursor is its stamp, its number and its mark."""

    patience: float = 0.1
    """Seconds that a reader gives transactions that run, so that callers see what they wrote themselves."""

    @renumbers
    async def events(self, queue: QueueRef, after: str | int = 0, limit: int = 1_000) -> list[Event]:
        """The events that follow; only a cursor is sure to miss none that was committed late."""
        cursor = read_cursor("after", after)
        while True:
            found = await self._read(queue, cursor, limit)
            if len(found.events) < limit and found.awaits is not None:
                # Also what the caller himself wrote just now.
                await self._await_running(found.awaits)
                found = await self._read(queue, cursor, limit)
            if found.events or found.last is None:
                return found.events
            # None of them can be read: others may follow.
            cursor = read_cursor("after", found.last)

    @renumbers
    async def damaged_events(
        self, queue: QueueRef, after: int = 0, limit: int = DAMAGED_EVENT_LIMIT
    ) -> list[DamagedEvent]:
        """The events with higher numbers that cannot be read."""
        found: list[DamagedEvent] = []
        while len(found) < limit and (rows := await self._look_at(queue, _BY_NUMBER, after, _CHUNK)):
            found += unreadable([(row[0], row) for row in rows], lambda row: event_from(queue, row))
            after = rows[-1][0]
        return found[: max(limit, 0)]

    @renumbers
    async def event_range(self, queue: QueueRef) -> tuple[int, int]:
        """The number behind those that were trimmed, and the highest among the newest that can be read."""
        number = await self._known(queue)
        if number is None:
            return 1, 0
        await self._await_running()
        rows = await self._ask(_RANGE, number)
        if not rows:
            await self._verify(queue, number)
        [(first, last)] = rows
        return first, last

    @renumbers
    async def trim(self, queue: QueueRef, *, through: int) -> int:
        """Forget events up to the first, in the order of the log, that has a higher number."""
        number = await self._known(queue)
        if number is None:
            return 0
        await self._await_running()
        [(cut,)] = await self._ask(_TRIM, number, through)
        if not cut:
            await self._verify(queue, number)
        return int(cut)

    async def _read(self, queue: QueueRef, cursor: Cursor, limit: int) -> Look:
        """The events after a cursor; CursorLostError when that cannot be told."""
        number = await self._known(queue)
        if number is None:
            check_cursor(queue, cursor, 1, 0, None)
            return Look([])
        if cursor.stamp is None and cursor.mark is not None:
            cursor = await self._placed(queue, number, cursor)
        many = max(0, limit)
        if cursor.stamp is None:
            rows = await self._ask(_AFTER_NUMBER, number, many, cursor.seq)
            if not rows:
                await self._verify(queue, number)
            trimmed = rows[0][2]
            check_cursor(queue, cursor, trimmed + 1, cursor.seq, None)
            return _look(queue, rows, _kept(rows))
        rows = await self._ask(_AFTER_CURSOR, number, many + 1, cursor.stamp, cursor.seq)
        if not rows:
            await self._verify(queue, number)
        cut_stamp, cut_seq, trimmed, *_ = rows[0]
        if (cursor.stamp, cursor.seq) < (cut_stamp, cut_seq):
            raise trimmed_error(queue, min(cursor.seq + 1, trimmed), trimmed)
        kept = _kept(rows)
        if kept and cursor_of(queue, kept[0]) == str(cursor):
            return _look(queue, rows, kept[1:])
        if (cursor.stamp, cursor.seq) == (cut_stamp, cut_seq):
            return _look(queue, rows, kept[:many])
        _, last = await self.event_range(queue)
        raise _stranger(queue, cursor, last)

    async def _placed(self, queue: QueueRef, number: int, cursor: Cursor) -> Cursor:
        """The cursor of the event with a number; the number alone if there is no such event (any longer)."""
        first, last = await self.event_range(queue)
        # The number where the log begins is asked for often, and no index has it.
        rows = await self._ask(_NUMBERED, number, cursor.seq) if cursor.seq >= first else []
        there = read_cursor("cursor", cursor_of(queue, rows[0])) if rows else None
        check_cursor(queue, cursor, first, last, there)
        return there or Cursor(cursor.seq)

    async def _await_running(self, first: int | None = None) -> None:
        """Wait for transactions that run now, or for those before a number, as long as `patience` lasts.

        A notification on its way is enough to hold the horizon back for a moment.
        """
        end = time.monotonic() + self.patience
        while True:
            [(xmin, xmax)] = await self._ask(_RUNNING)
            first = xmax if first is None else first
            if xmin >= first or time.monotonic() >= end:
                return
            await asyncio.sleep(_LOOK_SECONDS)


def _kept(rows: list[Row]) -> list[Row]:
    """The events of a page; it has one row without an event where there is none."""
    return [row[_HEAD:] for row in rows if row[_HEAD] is not None]


def _look(queue: QueueRef, rows: list[Row], kept: list[Row]) -> Look:
    """Events of a page."""
    xmin, xmax = rows[0][3:_HEAD]
    events = list(readable(queue, kept, lambda row: _event_of(queue, row)))
    return Look(events, None if xmin == xmax else xmax, cursor_of(queue, kept[-1]) if kept else None)


def cursor_of(queue: QueueRef, row: Row) -> str:
    """The cursor of an event, also of one that cannot be read, from its stamp and EVENT_COLUMNS."""
    return columns_of(("stamp", *EVENT_COLUMNS.split(", ")), [row]).cursors(queue)[0]


def _event_of(queue: QueueRef, row: Row) -> Event:
    """An event from its stamp and EVENT_COLUMNS, with its cursor."""
    event = event_from(queue, row[1:])
    return msgspec.structs.replace(event, cursor=str(Cursor(event.seq, event.mark, row[0])))


def _stranger(queue: QueueRef, cursor: Cursor, last: int) -> CursorLostError:
    try:
        check_cursor(queue, cursor, 1, last, None)
    except CursorLostError as error:
        return error
    return CursorLostError(
        f"cursor {cursor} is not of this log: event {cursor.seq} of queue {queue} is another one, "
        "as after a failover or when a copy is restored"
    )
