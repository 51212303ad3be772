"""Which of many queues need upkeep or have something to claim: a reading script for each queue.

The scripts of all queues of one node go there in one round trip.
"""

from collections.abc import Sequence
from typing import Any

from penstock.core.job import QueueRef
from penstock.core.limits import MAX_COUNT
from penstock.stores.bounds import DUE_LIMIT, MAX_LEASE_MS
from penstock.stores.claimable import ClaimFacts, claimable_at
from penstock.stores.due import UpkeepFacts, due_queue
from penstock.stores.redis import keys
from penstock.stores.redis.backend import Backend
from penstock.stores.redis.clock import RedisClock
from penstock.stores.redis.queues import RedisQueues
from penstock.stores.values import ClaimablePage, DuePage, DueQueue


class RedisUpkeep:
    """Looks at the queues of a tenant."""

    def __init__(self, backend: Backend, queues: RedisQueues, clock: RedisClock) -> None:
        self._server = backend.server
        self._queues = queues
        self._clock = clock

    async def claimable_queues(
        self, tenant: str, names: Sequence[str], *, within_ms: int = 0
    ) -> ClaimablePage:
        metas = [keys.meta_of(QueueRef(tenant, name)) for name in names]
        tiers = keys.HIGHEST_TIER, keys.LOWEST_TIER
        answers = await self._server.run_each("reads/claimable", metas, *tiers)
        now, found, unreachable = 0, dict[str, int](), list[str]()
        for name, answer in zip(names, answers, strict=True):
            if isinstance(answer, Exception):
                unreachable.append(name)
            if isinstance(answer, Exception) or not answer:
                continue
            read_at, pending, visible_at, held_until, is_paused, paused_until = answer
            facts = ClaimFacts(
                has_pending=pending == 1,
                visible_at=_at(visible_at),
                held_until=_at(held_until),
                is_paused=is_paused == 1,
                paused_until=_at(paused_until),
            )
            now = max(now, int(read_at))
            at = claimable_at(facts, now=int(read_at), within_ms=within_ms)
            if at is not None:
                found[name] = at
        return ClaimablePage(found, now or await self._clock.now(), unreachable)

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
        more: str | None = None
        if names is None:
            names, more = await self._queues.page(tenant, after, limit)
        kept = MAX_COUNT if events_kept is None else events_kept
        metas = [keys.meta_of(QueueRef(tenant, name)) for name in names]
        answers = await self._server.run_each("reads/due", metas, kept, MAX_LEASE_MS)
        now, due, unreachable = 0, list[DueQueue](), list[str]()
        for name, answer in zip(names, answers, strict=True):
            if isinstance(answer, Exception):
                unreachable.append(name)
            if isinstance(answer, Exception) or not answer:
                continue
            at = int(answer[0])
            now = max(now, at)
            each = due_queue(name, _facts(answer), now=at, within_ms=within_ms, events_kept=events_kept)
            if each is not None:
                due.append(each)
        return DuePage(due, now or await self._clock.now(), more, unreachable)


def _facts(answer: Sequence[Any]) -> UpkeepFacts:
    _, visible_at, first, far, instant, relays, prune_at, events = answer
    return UpkeepFacts(
        visible_at=_at(visible_at),
        first_deadline=_at(first),
        has_far_lease=far == 1,
        next_instant=_at(instant),
        has_relays=relays == 1,
        prune_at=_at(prune_at),
        events=events,
    )


def _at(score: bytes) -> int | None:
    return int(float(score)) if score else None
