"""The event log: reading it, finding cursors in it, and trimming it."""

from collections.abc import Mapping
from typing import Final

from penstock.core.cursors import Cursor, check_cursor, read_cursor, trimmed_error
from penstock.core.events import Event
from penstock.core.job import QueueRef
from penstock.stores.bounds import DAMAGED_EVENT_LIMIT
from penstock.stores.corruption import corrupt_events
from penstock.stores.postgres.backend import Backend
from penstock.stores.postgres.codec import columns_of, event_from
from penstock.stores.postgres.counting import Counting
from penstock.stores.postgres.event_pages import EventPages, cursor_of
from penstock.stores.postgres.renumbering import renumbers
from penstock.stores.rows import EVENT_COLUMNS
from penstock.stores.values import DamagedEvent, EventColumns

_CHUNK: Final = 1_000
_BY_NUMBER: Final = f"""
SELECT {EVENT_COLUMNS} FROM penstock.event WHERE queue = $1 AND seq > $2::bigint ORDER BY seq LIMIT $3::bigint
"""  # noqa: S608 (constants)

# Up to the first event that has a higher number, or that cannot be read yet: a reader at the cursor of an
# event with a number up to this one has nothing before it left to read. What is not in the counts yet stays.
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
        UNION ALL
        SELECT known.stamp, known.seq + 1 FROM penstock.queue_count AS known WHERE known.queue = $1
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
noted AS (
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

_NOTHING: Final = -1
_WALK: Final = 200_000

_LATER: Final = "event.queue = $1 AND (event.stamp, event.seq) > ($2::xid8, $3::bigint)"
_FINAL: Final = "event.stamp < pg_snapshot_xmin(pg_current_snapshot())"

_COLUMN_NAMES: Final = """
SELECT attname, quote_ident(attname)
FROM pg_attribute
WHERE attrelid = 'penstock.event'::regclass AND attnum > 0 AND NOT attisdropped
    AND attname NOT IN ('queue', 'stamp')
"""

# As in EventPages, the place up to which the log was trimmed comes with the events.
_COLUMNS: Final = f"""
SELECT queue.trimmed_stamp::text::bigint, queue.trimmed_seq, queue.trimmed, page.*
FROM penstock.queue
LEFT JOIN LATERAL (
    SELECT event.stamp::text::bigint, {{names}}
    FROM penstock.event
    WHERE {_LATER} AND {_FINAL}
        AND (event.seq > $4::bigint OR queue.trimmed = $4::bigint)
        AND (event.stamp, event.seq) <= ($5::xid8, $6::bigint)
    ORDER BY event.stamp, event.seq
    LIMIT $7::bigint
) AS page ON true
WHERE queue.n = $1
"""  # noqa: S608 (constants)

# The events on the way are only counted, which the index can do alone.
_REACH: Final = f"""
SELECT event.stamp::text::bigint, {EVENT_COLUMNS}
FROM penstock.event
WHERE queue = $1 AND (stamp, seq) = (
    SELECT event.stamp, event.seq
    FROM penstock.event
    WHERE {_LATER} AND {_FINAL}
        AND (event.seq > $4::bigint OR (SELECT trimmed FROM penstock.queue WHERE n = $1) = $4::bigint)
    ORDER BY {{order}}
    LIMIT 1 OFFSET $5::bigint
)
"""  # noqa: S608 (constants)
_FORWARD: Final = _REACH.format(order="event.stamp, event.seq")
_BACKWARD: Final = _REACH.format(order="event.stamp DESC, event.seq DESC")

# Where transactions overlap, time may go back in the order of the log: so it is walked, a part with each
# statement.
_SINCE: Final = f"""
SELECT walked.stamp::text::bigint, walked.seq, walked.at >= $4::bigint
FROM (
    SELECT event.stamp, event.seq, event.at, row_number() OVER (ORDER BY event.stamp, event.seq) AS nth
    FROM penstock.event
    WHERE {_LATER} AND {_FINAL}
    ORDER BY event.stamp, event.seq
    LIMIT $5::bigint
) AS walked
WHERE walked.at >= $4::bigint OR walked.nth = $5::bigint
ORDER BY walked.nth
LIMIT 1
"""  # noqa: S608 (constants)
_BEFORE: Final = f"""
SELECT event.stamp::text::bigint, {EVENT_COLUMNS}
FROM penstock.event
WHERE event.queue = $1 AND (event.stamp, event.seq) < ($2::xid8, $3::bigint)
ORDER BY event.stamp DESC, event.seq DESC
LIMIT 1
"""  # noqa: S608 (constants)


class PostgresEvents:
    """The part `EventLog`. An event's cursor is its stamp, its number and its mark."""

    def __init__(self, backend: Backend, pages: EventPages, counting: Counting) -> None:
        self._backend = backend
        self._counting = counting
        self._pages = pages
        self._columns: Mapping[str, str] = {}
        self.event_range = pages.event_range

    @renumbers
    async def read_events(self, queue: QueueRef, after: str | int = 0, limit: int = 1_000) -> list[Event]:
        """The events that follow; only a cursor is sure to miss none that was committed late."""
        cursor = read_cursor("after", after)
        while True:
            found = await self._pages.read(queue, cursor, limit)
            if len(found.events) < limit and found.awaits is not None:
                # The caller may have written some of these just now.
                await self._pages.await_writers(found.awaits)
                found = await self._pages.read(queue, cursor, limit)
            if found.events or found.last is None:
                return found.events
            # None of these events can be read: others may follow.
            cursor = read_cursor("after", found.last)

    @renumbers
    async def damaged_events(
        self, queue: QueueRef, after: int = 0, limit: int = DAMAGED_EVENT_LIMIT
    ) -> list[DamagedEvent]:
        """The events with higher numbers that cannot be read."""
        found: list[DamagedEvent] = []
        while len(found) < limit and (
            rows := await self._backend.read_queue(queue, _BY_NUMBER, after, _CHUNK)
        ):
            found += corrupt_events([(row[0], row) for row in rows], lambda row: event_from(queue, row))
            after = rows[-1][0]
        return found[: max(limit, 0)]

    @renumbers
    async def event_columns(
        self, queue: QueueRef, after: str | int, through: str, limit: int
    ) -> EventColumns:
        """The events that follow, up to a cursor, without a record of each."""
        cursor, end = read_cursor("after", after), read_cursor("through", through)
        await self._pages.read(queue, cursor, 0)
        number = await self._backend.find_number(queue)
        if number is None:
            return columns_of((), ())
        if end.stamp is None:
            end = await self._pages.locate(queue, number, end)
        if not self._columns:
            self._columns = dict(await self._backend.query(_COLUMN_NAMES))
        statement = _COLUMNS.format(names=", ".join(self._columns.values()))
        bounds = (end.stamp or 0, end.seq, max(0, limit))
        rows = await self._backend.query(statement, number, *_start(cursor), *bounds)
        if not rows:
            await self._backend.verify_number(queue, number)
        cut_stamp, cut_seq, trimmed, *_ = rows[0]
        if cursor.stamp is None:
            check_cursor(queue, cursor, trimmed + 1, cursor.seq, None)
        elif cursor.place < (cut_stamp, cut_seq):
            raise trimmed_error(queue, min(cursor.seq + 1, trimmed), trimmed)
        return columns_of(("stamp", *self._columns), [row[3:] for row in rows if row[3] is not None])

    @renumbers
    async def cursor_after(self, queue: QueueRef, after: str | int = 0, limit: int | None = None) -> str:
        """The cursor of the last of up to `limit` events that follow, by the primary key."""
        cursor = read_cursor("after", after)
        await self._pages.read(queue, cursor, 0)
        number = await self._backend.find_number(queue)
        if number is None:
            return str(cursor)
        if cursor.stamp is None and (cursor.mark is not None or limit == 0):
            cursor = await self._pages.locate(queue, number, cursor)
        if limit == 0:
            return str(cursor)
        start = _start(cursor)
        rows = [] if limit is None else await self._backend.query(_FORWARD, number, *start, limit - 1)
        rows = rows or await self._backend.query(_BACKWARD, number, *start, 0)
        return cursor_of(queue, rows[0]) if rows else str(cursor)

    @renumbers
    async def cursor_at(self, queue: QueueRef, at: int) -> str:
        """The cursor before the first event of a time, in the order of the log."""
        number = await self._backend.find_number(queue)
        if number is None:
            return "0"
        first, _ = await self.event_range(queue)
        stamp, seq, is_found = 0, 0, False
        while not is_found and (rows := await self._backend.query(_SINCE, number, stamp, seq, at, _WALK)):
            stamp, seq, is_found = rows[0]
        if not is_found:
            return await self.cursor_after(queue, first - 1)
        before = await self._backend.query(_BEFORE, number, stamp, seq)
        return cursor_of(queue, before[0]) if before else str(first - 1)

    @renumbers
    async def trim(self, queue: QueueRef, *, through: int) -> int:
        """Forget events up to the first, in the order of the log, that has a higher number."""
        number = await self._backend.find_number(queue)
        if number is None:
            return 0
        await self._pages.await_writers()
        await self._counting.fold_all(number)
        [(cut,)] = await self._backend.query(_TRIM, number, through)
        if not cut:
            await self._backend.verify_number(queue, number)
        return int(cut)


def _start(cursor: Cursor) -> tuple[int, int, int]:
    """After which stamp, after which number of that stamp, and after which number of any stamp."""
    return (0, 0, cursor.seq) if cursor.stamp is None else (cursor.stamp, cursor.seq, _NOTHING)
