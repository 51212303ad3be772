"""Which queues in the database need upkeep, and which have something to claim.

Each is one query, which looks at the first entry of each index of a queue.
"""

from collections.abc import Sequence
from typing import Any, Final

from penstock.stores.bounds import DUE_LIMIT
from penstock.stores.claimable import ClaimFacts, claimable_at
from penstock.stores.due import UpkeepFacts, due_queue
from penstock.stores.postgres.backend import Backend
from penstock.stores.postgres.clock import FAR_LEASE
from penstock.stores.postgres.counting import Counting
from penstock.stores.values import ClaimablePage, DuePage

COUNT_AFTER: Final = 2_000
"""So many events that are not in the counts of a queue yet are added to them by upkeep."""

_CLAIM_FACTS: Final = """
SELECT clock.now, found.*
FROM (SELECT penstock.now_us($2::bigint) / 1000 AS now) AS clock
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
_UPKEEP_FACTS: Final = """
SELECT
    chosen.name,
    clock.now,
    coalesce(pg_sequence_last_value(chosen.numbers), 0) - chosen.trimmed,
    chosen.n,
    coalesce(pg_sequence_last_value(chosen.numbers), 0) - coalesce(
        (SELECT known.seq FROM penstock.queue_count AS known WHERE known.queue = chosen.n), chosen.trimmed
    ),
    (
        SELECT job.visible_at FROM penstock.job
        WHERE job.queue = chosen.n AND job.visible_at IS NOT NULL
        ORDER BY job.visible_at LIMIT 1
    ),
    (
        SELECT job.deadline FROM penstock.job
        WHERE job.queue = chosen.n AND job.deadline IS NOT NULL
        ORDER BY job.deadline LIMIT 1
    ),
    EXISTS (SELECT 1 FROM penstock.job WHERE job.queue = chosen.n AND {far_lease}),
    (
        SELECT schedule.next_at FROM penstock.schedule
        WHERE schedule.queue = chosen.n AND schedule.next_at IS NOT NULL AND NOT schedule.paused
        ORDER BY schedule.next_at LIMIT 1
    ),
    EXISTS (SELECT 1 FROM penstock.relay WHERE relay.queue = chosen.n),
    (
        SELECT done.prune_at FROM penstock.done
        WHERE done.queue = chosen.n AND done.prune_at >= 0
        ORDER BY done.prune_at LIMIT 1
    ),
    (
        SELECT idempotency.until FROM penstock.idempotency
        WHERE idempotency.queue = chosen.n AND idempotency.until IS NOT NULL
        ORDER BY idempotency.until LIMIT 1
    ),
    (
        SELECT kind.until FROM penstock.kind
        WHERE kind.queue = chosen.n AND kind.is_left
        ORDER BY kind.until LIMIT 1
    )
FROM (SELECT penstock.now_us($2::bigint) / 1000 AS now) AS clock
CROSS JOIN LATERAL (
    SELECT queue.n, queue.name, queue.numbers, queue.trimmed FROM penstock.queue
    WHERE queue.tenant = $1 AND {chosen}
) AS chosen
"""
_PAGE: Final = _UPKEEP_FACTS.format(
    chosen='queue.name > $3 ORDER BY queue.name COLLATE "C" LIMIT $4::bigint', far_lease=FAR_LEASE
)
_NAMED: Final = _UPKEEP_FACTS.format(chosen="queue.name = ANY ($3::text[])", far_lease=FAR_LEASE)


class PostgresUpkeep:
    """The part `UpkeepReads`: looks at those queues of a tenant that the role may see."""

    def __init__(self, backend: Backend, counting: Counting) -> None:
        self._backend = backend
        self._counting = counting

    async def claimable_queues(
        self, tenant: str, names: Sequence[str], *, within_ms: int = 0
    ) -> ClaimablePage:
        """Which of these queues have something to claim."""
        rows = await self._backend.query(_CLAIM_FACTS, tenant, self._backend.newest_us, list(names))
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
        await self._backend.note_clock()
        if names is None:
            rows = await self._backend.query(_PAGE, tenant, self._backend.newest_us, after, limit)
        else:
            rows = await self._backend.query(_NAMED, tenant, self._backend.newest_us, list(names))
        now = int(rows[0][1]) if rows else await self._backend.now_us() // 1000
        self._backend.observe_time(now * 1000)
        for row in rows:
            # Whoever asks for the counts then has few events to add up.
            if row[4] >= COUNT_AFTER:
                await self._counting.fold_all(row[3])
        found = [
            due_queue(row[0], _facts(row), now=now, within_ms=within_ms, events_kept=events_kept)
            for row in rows
        ]
        more = max(row[0] for row in rows) if names is None and len(rows) == limit else None
        return DuePage([each for each in found if each is not None], now, more)


def _facts(row: tuple[Any, ...]) -> UpkeepFacts:
    _, _, events, _, _, visible_at, first, far, instant, has_relays, *prune = row
    return UpkeepFacts(
        visible_at=visible_at,
        first_deadline=first,
        has_far_lease=far,
        next_instant=instant,
        has_relays=has_relays,
        prune_at=min((at for at in prune if at is not None), default=None),
        events=events,
    )
