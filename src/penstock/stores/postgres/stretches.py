"""Stretches of the event log: where so many events end, where those of a time begin, and what they hold."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from penstock.core.cursors import Cursor, check_cursor, read_cursor, trimmed_error
from penstock.core.job import QueueRef
from penstock.stores.postgres.log import PostgresLog, cursor_of
from penstock.stores.postgres.records import columns_of
from penstock.stores.postgres.renumbering import renumbers
from penstock.stores.rows import EVENT_COLUMNS
from penstock.stores.values import EventColumns

_NOTHING: Final = -1
_WALK: Final = 200_000

_LATER: Final = "event.queue = $1 AND (event.stamp, event.seq) > ($2::xid8, $3::bigint)"
_FINAL: Final = "event.stamp < pg_snapshot_xmin(pg_current_snapshot())"

_NAMES: Final = """
SELECT attname, quote_ident(attname)
FROM pg_attribute
WHERE attrelid = 'penstock.event'::regclass AND attnum > 0 AND NOT attisdropped
    AND attname NOT IN ('queue', 'stamp')
"""

# As in the log's own pages, the place of the cut comes with the events.
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

# Those on the way are only counted, which the index can do alone.
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

# Where transactions overlap, time may go back in this order: the log is walked, some way with each statement.
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


class PostgresStretches(PostgresLog):
    """Where stretches of the log begin and end."""

    _names: Mapping[str, str] = MappingProxyType({})

    @renumbers
    async def event_columns(
        self, queue: QueueRef, after: str | int, through: str, limit: int
    ) -> EventColumns:
        """The events that follow, up to a cursor, without a record of each."""
        cursor, end = read_cursor("after", after), read_cursor("through", through)
        await self._read(queue, cursor, 0)
        number = await self._known(queue)
        if number is None:
            return columns_of((), ())
        if end.stamp is None:
            end = await self._placed(queue, number, end)
        if not self._names:
            self._names = dict(await self._ask(_NAMES))
        statement = _COLUMNS.format(names=", ".join(self._names.values()))
        given = (end.stamp or 0, end.seq, max(0, limit))
        rows = await self._ask(statement, number, *_start(cursor), *given)
        if not rows:
            await self._verify(queue, number)
        cut_stamp, cut_seq, trimmed, *_ = rows[0]
        if cursor.stamp is None:
            check_cursor(queue, cursor, trimmed + 1, cursor.seq, None)
        elif cursor.place < (cut_stamp, cut_seq):
            raise trimmed_error(queue, min(cursor.seq + 1, trimmed), trimmed)
        return columns_of(("stamp", *self._names), [row[3:] for row in rows if row[3] is not None])

    @renumbers
    async def cursor_after(self, queue: QueueRef, after: str | int = 0, limit: int | None = None) -> str:
        """The cursor of the last of so many events that follow, by the primary key."""
        cursor = read_cursor("after", after)
        await self._read(queue, cursor, 0)
        number = await self._known(queue)
        if number is None:
            return str(cursor)
        if cursor.stamp is None and (cursor.mark is not None or limit == 0):
            cursor = await self._placed(queue, number, cursor)
        if limit == 0:
            return str(cursor)
        start = _start(cursor)
        rows = [] if limit is None else await self._ask(_FORWARD, number, *start, limit - 1)
        rows = rows or await self._ask(_BACKWARD, number, *start, 0)
        return cursor_of(queue, rows[0]) if rows else str(cursor)

    @renumbers
    async def cursor_at(self, queue: QueueRef, at: int) -> str:
        """The cursor before the first event of a time, in the order of the log."""
        number = await self._known(queue)
        if number is None:
            return "0"
        first, _ = await self.event_range(queue)
        stamp, seq, is_found = 0, 0, False
        while not is_found and (rows := await self._ask(_SINCE, number, stamp, seq, at, _WALK)):
            stamp, seq, is_found = rows[0]
        if not is_found:
            return await self.cursor_after(queue, first - 1)
        before = await self._ask(_BEFORE, number, stamp, seq)
        return cursor_of(queue, before[0]) if before else str(first - 1)


def _start(cursor: Cursor) -> tuple[int, int, int]:
    """Behind which stamp, behind which number in it, and behind which number wherever it stands."""
    return (0, 0, cursor.seq) if cursor.stamp is None else (cursor.stamp, cursor.seq, _NOTHING)
