"""Pages of the event log: in an order to which nothing is added behind a reader.

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
from penstock.stores.corruption import readable_events
from penstock.stores.postgres.backend import Backend
from penstock.stores.postgres.codec import columns_of, event_from
from penstock.stores.postgres.engine import Row
from penstock.stores.postgres.renumbering import renumbers
from penstock.stores.rows import EVENT_COLUMNS

_RUNNING: Final = """
SELECT pg_snapshot_xmin(seen)::text::bigint, pg_snapshot_xmax(seen)::text::bigint
FROM pg_current_snapshot() AS seen
"""
_PAGE_COLUMNS: Final = 5
_POLL_SECONDS: Final = 0.0025

# The place up to which the log was trimmed, the transactions that run and the events are of one statement:
# so events that were trimmed before it cannot be missed. A cursor's own event comes first.
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
# After the number up to which the log was trimmed come all events that are there, also those with a lower
# number. Index entries of trimmed events may lie before that place for long: they are not walked over.
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


class EventPage(msgspec.Struct, frozen=True):
    """Events that were found; `awaits` is set while transactions before that number were running."""

    events: list[Event]
    awaits: int | None = None
    last: str | None = None
    """The cursor of the last one, also where it cannot be read."""


class EventPages:
    """Reads the log page by page, and finds the places of cursors in it."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def read(self, queue: QueueRef, cursor: Cursor, limit: int) -> EventPage:
        """The events after a cursor; CursorLostError where it cannot be said which these are."""
        number = await self._backend.find_number(queue)
        if number is None:
            check_cursor(queue, cursor, 1, 0, None)
            return EventPage([])
        if cursor.stamp is None and cursor.mark is not None:
            cursor = await self.locate(queue, number, cursor)
        many = max(0, limit)
        if cursor.stamp is None:
            rows = await self._backend.query(_AFTER_NUMBER, number, many, cursor.seq)
            if not rows:
                await self._backend.verify_number(queue, number)
            trimmed = rows[0][2]
            check_cursor(queue, cursor, trimmed + 1, cursor.seq, None)
            return _page_of(queue, rows, _events_in(rows))
        rows = await self._backend.query(_AFTER_CURSOR, number, many + 1, cursor.stamp, cursor.seq)
        if not rows:
            await self._backend.verify_number(queue, number)
        cut_stamp, cut_seq, trimmed, *_ = rows[0]
        if (cursor.stamp, cursor.seq) < (cut_stamp, cut_seq):
            raise trimmed_error(queue, min(cursor.seq + 1, trimmed), trimmed)
        events = _events_in(rows)
        if events and cursor_of(queue, events[0]) == str(cursor):
            return _page_of(queue, rows, events[1:])
        if (cursor.stamp, cursor.seq) == (cut_stamp, cut_seq):
            return _page_of(queue, rows, events[:many])
        _, last = await self.event_range(queue)
        raise _foreign_cursor(queue, cursor, last)

    async def locate(self, queue: QueueRef, number: int, cursor: Cursor) -> Cursor:
        """The cursor of the event with a number; the number alone if there is no such event (any longer)."""
        first, last = await self.event_range(queue)
        # Callers often name the number where the log begins, and no index finds it.
        rows = await self._backend.query(_NUMBERED, number, cursor.seq) if cursor.seq >= first else []
        there = read_cursor("cursor", cursor_of(queue, rows[0])) if rows else None
        check_cursor(queue, cursor, first, last, there)
        return there or Cursor(cursor.seq)

    async def await_writers(self, first: int | None = None) -> None:
        """Wait for transactions that run now, or for those before a number, for up to `writers_timeout`.

        A notification on its way is enough to hold the horizon back for a moment.
        """
        end = time.monotonic() + self._backend.writers_timeout
        while True:
            [(xmin, xmax)] = await self._backend.query(_RUNNING)
            first = xmax if first is None else first
            if xmin >= first or time.monotonic() >= end:
                return
            await asyncio.sleep(_POLL_SECONDS)

    @renumbers
    async def event_range(self, queue: QueueRef) -> tuple[int, int]:
        """The number behind those that were trimmed, and the highest among the newest that can be read."""
        number = await self._backend.find_number(queue)
        if number is None:
            return 1, 0
        await self.await_writers()
        rows = await self._backend.query(_RANGE, number)
        if not rows:
            await self._backend.verify_number(queue, number)
        [(first, last)] = rows
        return first, last


def _events_in(rows: list[Row]) -> list[Row]:
    """The events of a page; it has one row without an event where there is none."""
    return [row[_PAGE_COLUMNS:] for row in rows if row[_PAGE_COLUMNS] is not None]


def _page_of(queue: QueueRef, rows: list[Row], found: list[Row]) -> EventPage:
    """The readable events of a page."""
    xmin, xmax = rows[0][3:_PAGE_COLUMNS]
    events = list(readable_events(queue, found, lambda row: _event_of(queue, row)))
    return EventPage(events, None if xmin == xmax else xmax, cursor_of(queue, found[-1]) if found else None)


def cursor_of(queue: QueueRef, row: Row) -> str:
    """The cursor of an event, also of one that cannot be read, from its stamp and EVENT_COLUMNS."""
    return columns_of(("stamp", *EVENT_COLUMNS.split(", ")), [row]).cursors(queue)[0]


def _event_of(queue: QueueRef, row: Row) -> Event:
    """An event from its stamp and EVENT_COLUMNS, with its cursor."""
    event = event_from(queue, row[1:])
    return msgspec.structs.replace(event, cursor=str(Cursor(event.seq, event.mark, row[0])))


def _foreign_cursor(queue: QueueRef, cursor: Cursor, last: int) -> CursorLostError:
    try:
        check_cursor(queue, cursor, 1, last, None)
    except CursorLostError as error:
        return error
    return CursorLostError(
        f"cursor {cursor} is not of this log: event {cursor.seq} of queue {queue} is another one, "
        "as after a failover or when a copy is restored"
    )
