"""The moves of jobs: each is one call of its script, however many jobs it is about."""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from penstock.core.decide import CANCELLED
from penstock.core.effects import PROGRESS_EVERY_MS
from penstock.core.events import DELETED
from penstock.core.job import QueueRef
from penstock.core.moves import Beat, Expire, Move, Report, Settlement
from penstock.core.outcomes import SETTLED_LIMIT, Applied, Refused
from penstock.stores.absent import answers_absent
from penstock.stores.bounds import MAX_LEASE_MS, PROMOTE_LIMIT, PRUNE_LIMIT
from penstock.stores.redis.backend import Backend
from penstock.stores.redis.claims import RedisClaims
from penstock.stores.redis.codec import replies, requests
from penstock.stores.redis.codec.replies import Outcome
from penstock.stores.redis.enqueue import RedisEnqueue
from penstock.stores.redis.ghosts import GhostScan

_FIRST_VALUE: Final = 3
"""The number of the argument of progress.lua from which on values stand."""


class RedisMoves:
    """All moves but those that go with a claim's or an enqueue's own arguments, which have a module each."""

    def __init__(self, backend: Backend, claims: RedisClaims, ghosts: GhostScan | None) -> None:
        self._run_if_there = backend.run_if_there
        self._ghosts = ghosts
        self.enqueue = RedisEnqueue(backend).enqueue
        self.claim = claims.claim

    @answers_absent
    async def promote(self, queue: QueueRef, limit: int = PROMOTE_LIMIT) -> int:
        return int(await self._run_if_there(queue, Move.PROMOTE, limit)) if limit > 0 else 0

    @answers_absent
    async def heartbeat(
        self, queue: QueueRef, beats: Sequence[Beat], lease_ms: int
    ) -> list[Applied | Refused]:
        items = [(beat.id, beat.token) for beat in beats]
        return await self._outcomes(queue, Move.HEARTBEAT, items, lease_ms, MAX_LEASE_MS)

    @answers_absent
    async def progress(self, queue: QueueRef, reports: Sequence[Report]) -> list[Applied | Refused]:
        items = [(report.id, report.token, at) for at, report in enumerate(reports, start=_FIRST_VALUE)]
        values = (report.value for report in reports)
        return await self._outcomes(queue, Move.PROGRESS, items, PROGRESS_EVERY_MS, *values)

    @answers_absent
    async def settle(self, queue: QueueRef, settlements: Sequence[Settlement]) -> list[Applied | Refused]:
        if not settlements:
            return []
        packed, results = requests.settle_arguments(settlements)
        answers = await self._run_if_there(queue, "calls/settle", packed, SETTLED_LIMIT, CANCELLED, *results)
        return [replies.outcome(answer) for answer in answers]

    @answers_absent
    async def expire(self, queue: QueueRef, expiries: Sequence[Expire]) -> list[Applied | Refused]:
        items = [requests.expire_arguments(expiry) for expiry in expiries]
        return await self._outcomes(queue, Move.EXPIRE, items, MAX_LEASE_MS, CANCELLED)

    @answers_absent
    async def cancel(self, queue: QueueRef, ids: Sequence[str]) -> list[Applied | Refused]:
        outcomes = await self._outcomes(queue, Move.CANCEL, _items(ids), CANCELLED)
        if self._ghosts is not None:
            self._ghosts.left(queue, ids, outcomes)
        return outcomes

    @answers_absent
    async def redrive(self, queue: QueueRef, ids: Sequence[str]) -> list[Applied | Refused]:
        return await self._outcomes(queue, Move.REDRIVE, _items(ids))

    @answers_absent
    async def delete(self, queue: QueueRef, ids: Sequence[str]) -> list[Applied | Refused]:
        outcomes = await self._outcomes(queue, Move.DELETE, _items(ids), DELETED)
        if self._ghosts is not None:
            self._ghosts.left(queue, ids, outcomes)
        return outcomes

    @answers_absent
    async def prune(self, queue: QueueRef, limit: int = PRUNE_LIMIT) -> int:
        return int(await self._run_if_there(queue, Move.PRUNE, limit)) if limit > 0 else 0

    async def _outcomes(
        self, queue: QueueRef, move: Move, items: Sequence[Any], *arguments: Any
    ) -> list[Outcome]:
        if not items:
            return []
        answers = await self._run_if_there(queue, move, requests.pack(items), *arguments)
        return [replies.outcome(answer) for answer in answers]


def _items(ids: Iterable[str]) -> list[tuple[str]]:
    """Ids as items of a call whose items are arrays."""
    return [(each,) for each in ids]
