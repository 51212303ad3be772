"""Ids of jobs that left a list of pending ones and whose entries still stand there."""

from collections.abc import Sequence
from itertools import takewhile
from typing import Final

from penstock.bloom.rotating import RotatingBloom
from penstock.core.errors import StoreError
from penstock.core.job import QueueRef
from penstock.core.outcomes import Applied, Claims, Refused
from penstock.stores.redis.backend import Backend
from penstock.stores.redis.keys import HIGHEST_TIER, LOWEST_TIER, keys_of

LOOK: Final = 5_000
"""Entries of a list that are looked at, and that one claim then passes over at most."""


class GhostScan:
    """Says how many entries a claim may pass over: more where the filter takes the next ones for ghosts.

    The claim looks at the record of each entry all the same, so that a false positive drops no job.
    """

    def __init__(self, backend: Backend, ghosts: RotatingBloom) -> None:
        self._server = backend.server
        self._ghosts = ghosts
        self._looking: set[QueueRef] = set()

    def left(self, queue: QueueRef, ids: Sequence[str], answers: Sequence[Applied | Refused]) -> None:
        """Remember the jobs that were cancelled or deleted."""
        gone = [job for job, answer in zip(ids, answers, strict=True) if isinstance(answer, Applied)]
        self._ghosts.add(_item(queue, job) for job in gone)

    def on_claims(self, queue: QueueRef, claims: Claims) -> None:
        """A claim was answered; where it reached its limit, the next one begins with a look."""
        if claims.is_more:
            self._looking.add(queue)
            known = self._ghosts.maybe([_item(queue, job.id) for job in claims.jobs])
            self._ghosts.refuted(sum(known))

    async def pass_limit(self, queue: QueueRef, least: int) -> int:
        """How many entries the next claim may pass over."""
        if queue not in self._looking:
            return least
        self._looking.discard(queue)
        try:
            return max(least, await self._ghosts_ahead(queue))
        except StoreError:
            # The claim will meet the same fault, or do without the hint.
            return least

    async def _ghosts_ahead(self, queue: QueueRef) -> int:
        keys = keys_of(queue)
        tiers = range(HIGHEST_TIER, LOWEST_TIER - 1, -1)
        lists = await self._server.commands(
            [("LRANGE", keys.pending(str(tier)), 0, LOOK - 1) for tier in tiers], at_once=True
        )
        entries = [entry.decode().partition(" ")[2] for line in lists for entry in line][:LOOK]
        known = self._ghosts.maybe([_item(queue, job) for job in entries])
        return sum(1 for _ in takewhile(bool, known))


def _item(queue: QueueRef, job: str) -> str:
    return f"{queue}/{job}"
