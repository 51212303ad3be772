"""Which queues in the file have something to claim: one query, a look at the first entry of each index."""

import sqlite3
from collections.abc import Sequence
from typing import Final

from penstock.stores.claimable import ClaimFacts, claimable_at
from penstock.stores.rows import encode
from penstock.stores.sqlite.clock import host_us
from penstock.stores.sqlite.turns import Turns
from penstock.stores.values import ClaimablePage

_FACTS: Final = """
SELECT
    name,
    (SELECT 1 FROM job WHERE job.queue = queue.n AND state = 'pending' LIMIT 1),
    (SELECT min(visible_at) FROM job WHERE job.queue = queue.n AND state = 'delayed'),
    (SELECT min(held_until) FROM lane WHERE lane.queue = queue.n AND held_until IS NOT NULL),
    paused_at,
    paused_until
FROM queue
WHERE tenant = :tenant AND name IN (SELECT value FROM json_each(:names))
"""


class SqliteClaimable(Turns):
    """Looks at the queues of a tenant."""

    async def claimable_queues(
        self, tenant: str, names: Sequence[str], *, within_ms: int = 0
    ) -> ClaimablePage:
        """Which of these queues have something to claim."""
        params = {"tenant": tenant, "names": encode(list(names))}

        def work(connection: sqlite3.Connection) -> ClaimablePage:
            rows = connection.execute(_FACTS, params).fetchall()
            now = host_us(connection) // 1000
            found: dict[str, int] = {}
            for name, pending, visible_at, held_until, paused_at, paused_until in rows:
                facts = ClaimFacts(
                    has_pending=pending is not None,
                    visible_at=visible_at,
                    held_until=held_until,
                    is_paused=paused_at is not None,
                    paused_until=paused_until,
                )
                at = claimable_at(facts, now=now, within_ms=within_ms)
                if at is not None:
                    found[name] = at
            return ClaimablePage(found, now)

        return await self._read(work)
