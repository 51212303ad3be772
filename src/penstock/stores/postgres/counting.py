"""How many jobs a queue has in each state, added up from its events and from what was added up before.

Every event of one job says from which state to which the job went: so the log is a list of changes that each
transaction appends to and none waits for. `queue_count` has their sum up to a place below which every event
is final. A reader adds those that follow; `fold` moves the place on.
"""

from typing import Final

from penstock.core.errors import ConfigError
from penstock.core.states import State
from penstock.stores.postgres.backend import Backend
from penstock.stores.postgres.engine import Row

FOLD_LIMIT: Final = 10_000
"""Events that are added to the sum in one call, and the most that a reader adds up itself."""
_ROUNDS: Final = 20
"""Batches that a reader adds to the sum at once: when nobody looks after the queue, somebody has to."""

_STATES: Final = tuple(str(state) for state in State)
_COLUMNS: Final = ", ".join(_STATES)
_FINAL: Final = "event.stamp < pg_snapshot_xmin(pg_current_snapshot())"
_MOVED: Final = """
SELECT tail.target AS state, count(*) AS many FROM tail WHERE tail.job IS NOT NULL GROUP BY tail.target
UNION ALL
SELECT tail.source, -count(*) FROM tail WHERE tail.job IS NOT NULL GROUP BY tail.source
"""
_ROWS: Final = """
SELECT job.state, count(*) AS many FROM penstock.job WHERE job.queue = $1 GROUP BY job.state
UNION ALL
SELECT ended.state, count(*) FROM penstock.ended WHERE ended.queue = $1 GROUP BY ended.state
"""
_SUMS: Final = ", ".join(
    f"coalesce(sum(many) FILTER (WHERE state = '{state}'), 0)::bigint AS {state}" for state in _STATES
)

_COUNT: Final = f"SELECT {_SUMS} FROM ({_ROWS}) AS found"  # noqa: S608 (constants)
READ: Final = f"""
WITH base AS MATERIALIZED (
    SELECT
        coalesce(known.stamp, '0') AS stamp,
        coalesce(known.seq, 0) AS seq,
        coalesce(known.is_stale, false)
            OR (queue.trimmed_stamp, queue.trimmed_seq) > (coalesce(known.stamp, '0'), coalesce(known.seq, 0))
            AS is_stale,
        {", ".join(f"coalesce(known.{state}, 0) AS {state}" for state in _STATES)}
    FROM penstock.queue
    LEFT JOIN penstock.queue_count AS known ON known.queue = queue.n
    WHERE queue.n = $1
),
tail AS MATERIALIZED (
    SELECT event.seq, event.job, event.source, event.target
    FROM penstock.event
    WHERE event.queue = $1
        AND (event.stamp, event.seq) > ((SELECT base.stamp FROM base), (SELECT base.seq FROM base))
    ORDER BY event.stamp, event.seq
    LIMIT $2::bigint
),
changed AS (
    {_MOVED}
    UNION ALL
    SELECT removed.state, -removed.many FROM penstock.removed_count AS removed WHERE removed.queue = $1
),
summed AS (SELECT {_SUMS} FROM changed)
SELECT
    base.is_stale OR EXISTS (
        SELECT 1 FROM tail
        WHERE tail.job IS NULL AND NOT EXISTS (
            SELECT 1 FROM penstock.removed_count AS removed
            WHERE removed.queue = $1 AND removed.seq = tail.seq
        )
    ),
    (SELECT count(*) FROM tail),
    {", ".join(f"base.{state} + summed.{state}" for state in _STATES)}
FROM base CROSS JOIN summed
"""  # noqa: S608 (constants)
"""Whether the jobs have to be counted anew, how many events were added up, and the jobs of each state."""

# Whoever holds the row adds up; for others there is nothing to do. An event of many jobs without rows of what
# they were is one of a process that did not know of these tables.
_FOLD: Final = f"""
WITH seat AS MATERIALIZED (
    SELECT known.stamp, known.seq FROM penstock.queue_count AS known
    WHERE known.queue = $1
    FOR UPDATE SKIP LOCKED
),
tail AS MATERIALIZED (
    SELECT event.stamp, event.seq, event.job, event.source, event.target
    FROM penstock.event
    WHERE event.queue = $1
        AND (event.stamp, event.seq) > ((SELECT seat.stamp FROM seat), (SELECT seat.seq FROM seat))
        AND {_FINAL}
    ORDER BY event.stamp, event.seq
    LIMIT $2::bigint
),
gone AS (
    DELETE FROM penstock.removed_count AS removed
    WHERE removed.queue = $1
        AND EXISTS (SELECT 1 FROM seat)
        AND (removed.seq IS NULL OR removed.seq IN (SELECT tail.seq FROM tail WHERE tail.job IS NULL))
    RETURNING removed.seq, removed.state, removed.many
),
changed AS ({_MOVED} UNION ALL SELECT gone.state, -gone.many FROM gone),
summed AS (SELECT {_SUMS} FROM changed),
last AS (SELECT tail.stamp, tail.seq FROM tail ORDER BY tail.stamp DESC, tail.seq DESC LIMIT 1),
kept AS (
    UPDATE penstock.queue_count AS known SET
        stamp = coalesce(last.stamp, known.stamp),
        seq = coalesce(last.seq, known.seq),
        is_stale = known.is_stale
            OR (queue.trimmed_stamp, queue.trimmed_seq) > (seat.stamp, seat.seq)
            OR EXISTS (
                SELECT 1 FROM tail
                WHERE tail.job IS NULL AND NOT EXISTS (SELECT 1 FROM gone WHERE gone.seq = tail.seq)
            ),
        {", ".join(f"{state} = known.{state} + summed.{state}" for state in _STATES)}
    FROM seat
    JOIN penstock.queue ON queue.n = $1
    CROSS JOIN summed
    LEFT JOIN last ON true
    WHERE known.queue = $1
)
SELECT count(*) FROM tail
"""  # noqa: S608 (constants)

_KEEP: Final = "INSERT INTO penstock.queue_count (queue) VALUES ($1) ON CONFLICT DO NOTHING"
_LOCK: Final = "SELECT 1 FROM penstock.queue_count WHERE queue = $1 FOR UPDATE"
_RECOUNT: Final = f"""
WITH place AS MATERIALIZED (
    SELECT newest.stamp, newest.seq
    FROM (
        (
            SELECT event.stamp, event.seq FROM penstock.event
            WHERE event.queue = $1 AND {_FINAL}
            ORDER BY event.stamp DESC, event.seq DESC
            LIMIT 1
        )
        UNION ALL
        SELECT queue.trimmed_stamp, queue.trimmed_seq FROM penstock.queue WHERE queue.n = $1
    ) AS newest
    ORDER BY newest.stamp DESC, newest.seq DESC
    LIMIT 1
),
tail AS MATERIALIZED (
    SELECT event.seq, event.job, event.source, event.target
    FROM penstock.event
    WHERE event.queue = $1
        AND (event.stamp, event.seq) > ((SELECT place.stamp FROM place), (SELECT place.seq FROM place))
),
gone AS (
    DELETE FROM penstock.removed_count AS removed
    WHERE removed.queue = $1
        AND (removed.seq IS NULL OR removed.seq NOT IN (SELECT tail.seq FROM tail WHERE tail.job IS NULL))
),
changed AS (
    {_ROWS}
    UNION ALL
    SELECT moved.state, -moved.many FROM ({_MOVED}) AS moved
    UNION ALL
    SELECT removed.state, removed.many FROM penstock.removed_count AS removed
    WHERE removed.queue = $1 AND removed.seq IN (SELECT tail.seq FROM tail WHERE tail.job IS NULL)
),
summed AS (SELECT {_SUMS} FROM changed)
UPDATE penstock.queue_count AS known SET
    stamp = place.stamp,
    seq = place.seq,
    is_stale = false,
    {", ".join(f"{state} = summed.{state}" for state in _STATES)}
FROM place CROSS JOIN summed
WHERE known.queue = $1
"""  # noqa: S608 (constants)

_COMPARE: Final = f"""
SELECT counted.*, {_COLUMNS}
FROM ({READ}) AS counted (is_stale, added, {", ".join(f"counted_{state}" for state in _STATES)})
CROSS JOIN (SELECT {_SUMS} FROM ({_ROWS}) AS found) AS rows_found
"""  # noqa: S608 (constants)


class Counting:
    """Reads, moves on and mends the counts of queues, by their numbers."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def read(self, number: int) -> dict[State, int] | None:
        """Jobs by state; None where there is no queue of this number (any longer)."""
        try:
            return await self._read(number)
        except ConfigError:
            # Of a role that may only read.
            rows = await self._backend.query(_COUNT, number)
            return _by_state(rows[0])

    async def _read(self, number: int) -> dict[State, int] | None:
        for attempt in range(_ROUNDS):
            rows = await self._backend.query(READ, number, FOLD_LIMIT)
            if not rows:
                return None
            is_stale, added, *counts = rows[0]
            if is_stale and attempt == 0:
                await self.recount(number)
            elif added < FOLD_LIMIT:
                return _by_state(counts)
            elif not await self.fold(number):
                # A transaction that stays open keeps events from being final.
                break
        rows = await self._backend.query(READ, number, None)
        return _by_state(rows[0][2:]) if rows else None

    async def fold(self, number: int) -> int:
        """Add a batch of events to the sum; how many were. None are while another process does it."""
        rows = await self._backend.query(_FOLD, number, FOLD_LIMIT)
        if not rows[0][0]:
            await self._backend.query(_KEEP, number)
            rows = await self._backend.query(_FOLD, number, FOLD_LIMIT)
        return int(rows[0][0])

    async def fold_all(self, number: int) -> None:
        """Add up all events that are final, up to a bound."""
        for _ in range(_ROUNDS):
            if await self.fold(number) < FOLD_LIMIT:
                return

    async def recount(self, number: int) -> None:
        """Count the jobs themselves, and go on from there."""
        async with self._backend.engine.transaction() as connection:
            await self._backend.query(_KEEP, number, on=connection)
            await self._backend.query(_LOCK, number, on=connection)
            # The rows and the events are those of one moment, after the wait for the lock.
            await self._backend.query(_RECOUNT, number, on=connection)

    async def compare(self, number: int) -> list[str]:
        """What the counts say otherwise than the jobs; nothing while they are to be counted anew anyway."""
        rows = await self._backend.query(_COMPARE, number, None)
        if not rows or rows[0][0]:
            return []
        counted, found = rows[0][2 : 2 + len(_STATES)], rows[0][2 + len(_STATES) :]
        return [
            f"the counts say {said} {state} jobs, and there are {there}"
            for state, said, there in zip(_STATES, counted, found, strict=True)
            if said != there
        ]


def _by_state(counts: Row | list[int]) -> dict[State, int]:
    return {State(state): int(count) for state, count in zip(_STATES, counts, strict=True)}
