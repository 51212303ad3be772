"""Which queues in the database have something to claim: one query, looking at first entries of indexes."""

from collections.abc import Sequence
from typing import Final

from penstock.stores.claimable import ClaimFacts, claimable_at
from penstock.stores.postgres.room import Room
from penstock.stores.values import ClaimablePage

# Most queues are idle: only what is not is sent.
_FACTS: Final = """
SELECT given.now, found.*
FROM (SELECT penstock.now_us($2::bigint) / 1000 AS now) AS given
LEFT JOIN LATERAL (
    SELECT
        queue.name,
        EXISTS (
            SELECT 1 FROM penstock.job WHERE job.queue = queue.n AND job.state = 'pending'
        ) AS has_pending,
        (
            SELECT job.visible_at FROM penstock.job
            WHERE job.queue = queue.n AND job.visible_at IS NOT NULL
            ORDER BY job.visible_at LIMIT 1
        ) AS visible_at,
        (
            SELECT lane.held_until FROM penstock.lane
            WHERE lane.queue = queue.n AND lane.held_until IS NOT NULL
            ORDER BY lane.held_until LIMIT 1
        ) AS held_until,
        queue.paused_at IS NOT NULL AS is_paused,
        queue.paused_until
    FROM penstock.queue
    WHERE queue.tenant = $1 AND queue.name = ANY ($3::text[])
) AS found ON found.has_pending OR found.visible_at IS NOT NULL OR found.held_until IS NOT NULL
"""


class PostgresClaimable(Room):
    """Looks at the queues of a tenant; at those alone that the role may see."""

    async def claimable_queues(
        self, tenant: str, names: Sequence[str], *, within_ms: int = 0
    ) -> ClaimablePage:
        """Which of these queues have something to claim."""
        rows = await self._ask(_FACTS, tenant, self._seen_us, list(names))
        now, found = int(rows[0][0]), dict[str, int]()
        for _, name, has_pending, visible_at, held_until, is_paused, paused_until in rows:
            if name is None:
                continue
            facts = ClaimFacts(
                has_pending=has_pending,
                visible_at=visible_at,
                held_until=held_until,
                is_paused=is_paused,
                paused_until=paused_until,
            )
            at = claimable_at(facts, now=now, within_ms=within_ms)
            if at is not None:
                found[name] = at
        return ClaimablePage(found, now)
