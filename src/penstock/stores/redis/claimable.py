"""Which queues on the server have something to claim: a reading script for each, one round trip per node."""

from collections.abc import Sequence

from penstock.core.job import QueueRef
from penstock.stores.claimable import ClaimFacts, claimable_at
from penstock.stores.redis import keys
from penstock.stores.redis.clock import ServerClock
from penstock.stores.redis.server import Server
from penstock.stores.values import ClaimablePage


class RedisClaimable:
    """Looks at the queues of a tenant."""

    _server: Server
    _clock: ServerClock

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


def _at(score: bytes) -> int | None:
    return int(float(score)) if score else None
