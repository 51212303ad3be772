"""The event log: in an order to which nothing is added behind a reader.

Events are ordered by their stamp, then by their number; see the table. Only those with a stamp below every
running transaction are read: all of them are there by then, whenever they were committed.
"""

import asyncio
from typing import Any, Final

from penstock.core.errors import CursorLostError
from penstock.core.events import Event
from penstock.core.job import QueueRef
from penstock.stores.postgres.claims import PostgresClaims
from penstock.stores.postgres.records import EVENT_COLUMNS, event_from

_HORIZON: Final = "stamp < pg_snapshot_xmin(pg_current_snapshot())"

_RUNNING: Final = """
SELECT pg_snapshot_xmin(seen)::text::bigint, pg_snapshot_xmax(seen)::text::bigint
FROM pg_current_snapshot() AS seen
"""
_LOOKS: Final = 40
_LOOK_SECONDS: Final = 0.0025

_TRIMMED: Final = "SELECT trimmed_stamp::text, trimmed FROM penstock.queue WHERE n = $1"

_PAGE: Final = f"""
SELECT stamp::text, {EVENT_COLUMNS}
FROM penstock.event
WHERE queue = $1 AND (stamp, seq) > ($2::xid8, $3::bigint) AND seq > $4::bigint AND {_HORIZON}
ORDER BY event.stamp, event.seq
LIMIT $5::bigint
"""  # noqa: S608 (constants)

_RANGE: Final = f"""
WITH edge AS (
    (SELECT seq FROM penstock.event WHERE queue = $1 AND {_HORIZON} ORDER BY stamp, seq LIMIT 1)
    UNION ALL
    (SELECT seq FROM penstock.event WHERE queue = $1 AND {_HORIZON} ORDER BY stamp DESC, seq DESC LIMIT 1)
)
SELECT
    coalesce((SELECT min(seq) FROM edge), queue.trimmed + 1),
    coalesce((SELECT max(seq) FROM edge), queue.trimmed)
FROM penstock.queue
WHERE queue.n = $1
"""  # noqa: S608 (constants)

_TRIM: Final = f"""
WITH cut AS MATERIALIZED (
    SELECT stamp, seq FROM penstock.event
    WHERE queue = $1 AND seq <= $2::bigint AND {_HORIZON}
    ORDER BY stamp DESC, seq DESC LIMIT 1
),
gone AS (
    DELETE FROM penstock.event USING cut
    WHERE event.queue = $1 AND (event.stamp, event.seq) <= (cut.stamp, cut.seq)
    RETURNING 1
),
kept AS (
    UPDATE penstock.queue SET trimmed_stamp = cut.stamp, trimmed = cut.seq FROM cut WHERE queue.n = $1
)
SELECT count(*) FROM gone
"""  # noqa: S608 (constants)


class PostgresLog(PostgresClaims):
    """Every transition, in the queue's order."""

    async def events(self, queue: QueueRef, after: int | str = 0, limit: int = 1_000) -> list[Event]:
        """Events behind a cursor, or with a higher number; only a cursor misses none committed late."""
        return [event for _, event in await self.events_with_cursors(queue, after, limit)]

    async def events_with_cursors(
        self, queue: QueueRef, after: int | str = 0, limit: int = 1_000
    ) -> list[tuple[str, Event]]:
        """Events behind a cursor, each with the cursor that goes on behind it."""
        number = await self._known(queue)
        if number is None:
            return []
        await self._await_running()
        [(trimmed_stamp, trimmed)] = await self._ask(_TRIMMED, number)
        stamp, seq, above = _position(after)
        if (stamp, seq) < (int(trimmed_stamp), trimmed) if isinstance(after, str) else above < trimmed:
            raise CursorLostError(f"events up to {trimmed} of queue {queue} were trimmed")
        rows = await self._ask(_PAGE, number, stamp, seq, above, limit)
        return [(f"{row[0]}-{row[1]}", event_from(queue, row[1:])) for row in rows]

    async def event_range(self, queue: QueueRef) -> tuple[int, int]:
        """The numbers of the oldest event kept and of the newest."""
        number = await self._known(queue)
        if number is None:
            return 1, 0
        await self._await_running()
        [(first, last)] = await self._ask(_RANGE, number)
        return first, last

    async def trim(self, queue: QueueRef, *, through: int) -> int:
        """Forget events up to this number."""
        number = await self._known(queue)
        if number is None:
            return 0
        await self._await_running()
        return int((await self._ask(_TRIM, number, through))[0][0])

    async def _await_running(self) -> None:
        """Give transactions that run now a tenth of a second, so that callers see what they wrote themselves.

        A notification on its way is enough to hold the horizon back for a moment.
        """
        first: int | None = None
        for _ in range(_LOOKS):
            [(xmin, xmax)] = await self._ask(_RUNNING)
            first = xmax if first is None else first
            if xmin >= first:
                return
            await asyncio.sleep(_LOOK_SECONDS)


def _position(after: int | str) -> tuple[int, int, Any]:
    """The stamp and number behind which to read, and a number that all have to be above."""
    if isinstance(after, int):
        return 0, 0, after
    stamp, _, seq = after.partition("-")
    return int(stamp), int(seq), 0
