"""Ids of jobs that left a list of pending ones and whose entries still stand there."""

from collections.abc import Sequence
from itertools import takewhile
from typing import Final

from penstock.bloom.rotating import RotatingBloom
from penstock.core.job import Claimed, QueueRef
from penstock.core.outcomes import Applied, Refused
from penstock.stores.redis.keys import HIGHEST_TIER, LOWEST_TIER, keys_of
from penstock.stores.redis.server import Server

LOOK: Final = 5_000
"""Entries of a list that are looked at, and that one claim then passes over at most."""


class GhostScan:
    """Says how many entries a claim may pass over: more where the filter takes the next ones for ghosts.

    The claim looks at the record of each entry all the same, so that a false positive drops no job.
    """

    def __init__(self, server: Server, ghosts: RotatingBloom) -> None:
        self._server = server
        self._ghosts = ghosts
        self._ahead: dict[QueueRef, int] = {}

    def left(self, queue: QueueRef, ids: Sequence[str], answers: Sequence[Applied | Refused]) -> None:
        """Remember the jobs that were cancelled or deleted."""
        gone = [job for job, answer in zip(ids, answers, strict=True) if isinstance(answer, Applied)]
        self._ghosts.add(_item(queue, job) for job in gone)

    def pass_limit(self, queue: QueueRef, least: int) -> int:
        """How many entries the next claim may pass over."""
        return max(least, self._ahead.pop(queue, 0))

    async def look(self, queue: QueueRef, claimed: Sequence[Claimed]) -> None:
        """Look at the next entries after a claim that reached its limit."""
        if claimed:
            known = self._ghosts.maybe([_item(queue, job.id) for job in claimed])
            self._ghosts.refuted(sum(known))
        keys = keys_of(queue)
        tiers = range(HIGHEST_TIER, LOWEST_TIER - 1, -1)
        lists = await self._server.commands(
            [("LRANGE", keys.pending(str(tier)), 0, LOOK - 1) for tier in tiers], at_once=True
        )
        entries = [entry.decode().partition(" ")[2] for line in lists for entry in line][:LOOK]
        known = self._ghosts.maybe([_item(queue, job) for job in entries])
        self._ahead[queue] = sum(1 for _ in takewhile(bool, known))


def _item(queue: QueueRef, job: str) -> str:
    return f"{queue}/{job}"
