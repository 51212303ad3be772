"""Claims: one statement, told where in the line it need not look."""

from penstock.core.job import QueueRef
from penstock.core.moves import Move
from penstock.core.outcomes import Claims
from penstock.stores.postgres.engine import Row
from penstock.stores.postgres.hints import TIERS, Hints
from penstock.stores.postgres.reads import PostgresReads
from penstock.stores.postgres.records import claimed_of
from penstock.stores.protocol import PROMOTE_LIMIT, RECOVER_LIMIT

_HEAD = 5
_PLACE = -1
_FIRST_DEADLINE = """
SELECT deadline FROM penstock.job WHERE queue = $1 AND deadline >= $2::bigint ORDER BY deadline LIMIT 1
"""


class PostgresClaims(PostgresReads):
    """Promoting and claiming."""

    async def promote(self, queue: QueueRef, limit: int = PROMOTE_LIMIT) -> int:
        """Make due jobs claimable."""
        [(moved,)] = await self._move(Move.PROMOTE, await self._number(queue), limit)
        if moved:
            self._ring_ready(queue)
        return int(moved)

    async def claim(self, queue: QueueRef, *, worker: str, limit: int, lease_ms: int) -> Claims:
        """Lease jobs, and name leases that ran out. What is due is promoted before, only if there is any."""
        number = await self._number(queue)
        hints = self._hints.setdefault(number, Hints())
        rows = await self._lease(number, hints, limit, lease_ms, worker)
        now_us, _, due, *_ = rows[0]
        if due is not None and due * 1000 <= now_us:
            await self._move(Move.PROMOTE, number, PROMOTE_LIMIT, at_us=now_us)
            rows = await self._lease(number, hints, limit, lease_ms, worker, at_us=now_us)
        now_us, _, due, is_late, open_at = rows[0][:_HEAD]
        now = now_us // 1000
        jobs = [claimed_of(row[_HEAD:]) for row in rows] if rows[0][_HEAD] is not None else []
        if jobs and hints.wants_peek(max(row[_PLACE] for row in rows)):
            await self._peek(number, hints)
        expired = await self.expired(queue, RECOVER_LIMIT) if is_late else []
        deadline = (
            now + lease_ms if jobs and len(jobs) == limit else await self._first_deadline(number, hints)
        )
        coming = [at for at in (due, deadline, open_at) if at is not None]
        return Claims(jobs, expired, max(0, min(coming) - now) if coming else None)

    async def _lease(
        self, number: int, hints: Hints, limit: int, lease_ms: int, worker: str, *, at_us: int | None = None
    ) -> list[Row]:
        """One statement; with a time it leases although some are due: it is that of their promotion."""
        tiers, lows, highs = hints.spans()
        rows = await self._move(
            Move.CLAIM,
            number,
            limit,
            lease_ms,
            worker,
            tiers,
            lows,
            highs,
            *hints.times(),
            at_us is not None,
            at_us=at_us,
        )
        now_us, _, due, is_late, *_ = rows[0]
        self._seen_us = max(self._seen_us, now_us)
        hints.saw(now_us // 1000, due, is_late=is_late)
        return rows

    async def _first_deadline(self, number: int, hints: Hints) -> int | None:
        """When the next lease runs out; asked only by who did not get all he wanted, and may wait."""
        rows = await self._ask(_FIRST_DEADLINE, number, hints.times()[0])
        return rows[0][0] if rows else None

    async def _peek(self, number: int, hints: Hints) -> None:
        newest = hints.newest
        floors = [hints.floors[tier] for tier in TIERS]
        [(xmin, xmax, firsts)] = await self._share("peek", number, list(TIERS), floors)
        hints.peeked(newest, xmin, xmax, firsts)
