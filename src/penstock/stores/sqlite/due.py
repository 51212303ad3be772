"""Which queues in the file need upkeep: one query, a look at the first entry of each index per queue."""

import sqlite3
from collections.abc import Sequence
from typing import Any, Final

from penstock.stores.bounds import DUE_LIMIT
from penstock.stores.due import UpkeepFacts, due_queue
from penstock.stores.rows import encode
from penstock.stores.sqlite.clock import FAR_LEASE, LEASE_PARAMS, STEPPED, host_us
from penstock.stores.sqlite.turns import Turns
from penstock.stores.values import DuePage

_FACTS: Final = f"""
SELECT
    name,
    seq - trimmed,
    (SELECT min(visible_at) FROM job WHERE job.queue = queue.n AND state = 'delayed'),
    (SELECT min(deadline) FROM job WHERE job.queue = queue.n AND state = 'active'),
    iif(
        {STEPPED},
        (SELECT 1 FROM job WHERE job.queue = queue.n AND state = 'active' AND {FAR_LEASE} LIMIT 1),
        NULL
    ),
    (SELECT min(next_at) FROM schedule WHERE schedule.queue = queue.n AND next_at IS NOT NULL AND NOT paused),
    (SELECT 1 FROM relay WHERE relay.queue = queue.n LIMIT 1),
    (
        SELECT min(prune_at) FROM job
        WHERE job.queue = queue.n AND state IN ('completed', 'failed', 'cancelled')
    ),
    (SELECT min(until) FROM idempotency WHERE idempotency.queue = queue.n AND until IS NOT NULL)
FROM queue
"""  # noqa: S608 (constants)
_PAGE: Final = f"{_FACTS} WHERE tenant = :tenant AND name > :after ORDER BY name LIMIT :limit"
_NAMED: Final = f"{_FACTS} WHERE tenant = :tenant AND name IN (SELECT value FROM json_each(:names))"  # noqa: S608 (constants)
_NOTHING: Final = (None,) * 7


class SqliteDue(Turns):
    """Looks at the queues of a tenant."""

    async def due_queues(
        self,
        tenant: str,
        names: Sequence[str] | None = None,
        *,
        within_ms: int = 0,
        events_kept: int | None = None,
        after: str = "",
        limit: int = DUE_LIMIT,
    ) -> DuePage:
        """Which queues of a tenant need upkeep."""
        limit = max(1, limit)

        def work(connection: sqlite3.Connection) -> DuePage:
            now = host_us(connection) // 1000
            params: dict[str, Any] = {"tenant": tenant, "now": now, **LEASE_PARAMS}
            if names is None:
                rows = connection.execute(_PAGE, params | {"after": after, "limit": limit}).fetchall()
            else:
                rows = connection.execute(_NAMED, params | {"names": encode(list(names))}).fetchall()
            most = float("inf") if events_kept is None else events_kept
            # Most queues are idle.
            busy = [row for row in rows if row[2:] != _NOTHING or row[1] > most]
            found = [
                due_queue(row[0], _facts(row), now=now, within_ms=within_ms, events_kept=events_kept)
                for row in busy
            ]
            more = rows[-1][0] if names is None and len(rows) == limit else None
            return DuePage([each for each in found if each is not None], now, more)

        return await self._read(work)


def _facts(row: tuple[Any, ...]) -> UpkeepFacts:
    _, events, visible_at, first, far, instant, relay, prune_at, key_until = row
    return UpkeepFacts(
        visible_at=visible_at,
        first_deadline=first,
        has_far_lease=far is not None,
        next_instant=instant,
        has_relays=relay is not None,
        prune_at=min((at for at in (prune_at, key_until) if at is not None), default=None),
        events=events,
    )
