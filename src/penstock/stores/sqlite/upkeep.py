"""Which queues in the file need upkeep or have something to claim, by the first entry of each index."""

import sqlite3
from collections.abc import Sequence
from typing import Any, Final

from penstock.stores.bounds import DUE_LIMIT
from penstock.stores.claimable import ClaimFacts, claimable_at
from penstock.stores.due import UpkeepFacts, due_queue
from penstock.stores.rows import encode
from penstock.stores.sqlite.backend import Backend
from penstock.stores.sqlite.clock import FAR_LEASE, LEASE_PARAMS, STEPPED, host_us
from penstock.stores.values import ClaimablePage, DuePage

_CLAIM_FACTS: Final = """
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
_UPKEEP_FACTS: Final = f"""
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
_PAGE: Final = f"{_UPKEEP_FACTS} WHERE tenant = :tenant AND name > :after ORDER BY name LIMIT :limit"
_NAMED: Final = f"{_UPKEEP_FACTS} WHERE tenant = :tenant AND name IN (SELECT value FROM json_each(:names))"  # noqa: S608 (constants)
_NOTHING: Final = (None,) * 7


class SqliteUpkeep:
    """Looks at the queues of a tenant."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def claimable_queues(
        self, tenant: str, names: Sequence[str], *, within_ms: int = 0
    ) -> ClaimablePage:
        """Which of these queues have something to claim."""
        params = {"tenant": tenant, "names": encode(list(names))}

        def work(connection: sqlite3.Connection) -> ClaimablePage:
            rows = connection.execute(_CLAIM_FACTS, params).fetchall()
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

        return await self._backend.read(work)

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
                due_queue(row[0], _upkeep_facts(row), now=now, within_ms=within_ms, events_kept=events_kept)
                for row in busy
            ]
            more = rows[-1][0] if names is None and len(rows) == limit else None
            return DuePage([each for each in found if each is not None], now, more)

        return await self._backend.read(work)


def _upkeep_facts(row: tuple[Any, ...]) -> UpkeepFacts:
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
