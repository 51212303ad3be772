"""Which queues on the server need upkeep: a reading script for each, in one round trip per node."""

from collections.abc import Sequence
from typing import Any

from penstock.core.job import QueueRef
from penstock.core.limits import MAX_COUNT
from penstock.stores.bounds import DUE_LIMIT, MAX_LEASE_MS
from penstock.stores.due import UpkeepFacts, due_queue
from penstock.stores.redis import keys
from penstock.stores.redis.clock import ServerClock
from penstock.stores.redis.queues import Queues
from penstock.stores.redis.server import Server
from penstock.stores.values import DuePage, DueQueue


class RedisDue:
    """Looks at the queues of a tenant."""

    _server: Server
    _clock: ServerClock
    _queues: Queues

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
