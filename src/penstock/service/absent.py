"""Queues that are not there: a call that could only find nothing in them is answered without making them."""

from typing import Any, Final

from penstock.core.job import QueueRef
from penstock.core.outcomes import Refusal, Refused
from penstock.stores.protocol import Queues

MOST_KNOWN: Final = 10_000
_LOST: Final = Refused(Refusal.LOST)


class KnownQueues:
    """Which queues are there. One that was seen is not asked for again: a store makes none that is gone."""

    def __init__(self, store: Queues) -> None:
        self._store = store
        self._seen: set[QueueRef] = set()

    async def has(self, queue: QueueRef) -> bool:
        """True for a queue that is there."""
        if queue in self._seen:
            return True
        if await self._store.queue(queue) is None:
            return False
        if len(self._seen) >= MOST_KNOWN:
            self._seen.clear()
        self._seen.add(queue)
        return True

    def forget(self, queue: QueueRef) -> None:
        """The queue was deleted: look again before it is said to be there."""
        self._seen.discard(queue)


def lost(items: list[Any]) -> list[Refused]:
    """The answers for leases in a queue that is not there."""
    return [_LOST] * len(items)
