"""Knows which queues exist, so that reads of missing queues are answered without creating them."""

import time
from collections.abc import Callable
from typing import Any, Final

from penstock.core.job import QueueRef
from penstock.core.outcomes import Refusal, Refused
from penstock.stores.protocol import Queues

MOST_KNOWN: Final = 10_000
KNOWN_SECONDS: Final = 10.0
"""How long a queue that was seen counts as there: another process may have deleted it since."""
_LOST: Final = Refused(Refusal.LOST)


class KnownQueues:
    """Knows which queues exist; a queue that was found is not read again within KNOWN_SECONDS."""

    def __init__(self, store: Queues, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._clock = clock
        self._seen: dict[QueueRef, float] = {}

    async def has(self, queue: QueueRef) -> bool:
        """True for a queue that exists."""
        if self._clock() < self._seen.get(queue, 0.0):
            return True
        self._seen.pop(queue, None)
        if await self._store.find_queue(queue) is None:
            return False
        if len(self._seen) >= MOST_KNOWN:
            self._seen.clear()
        self._seen[queue] = self._clock() + KNOWN_SECONDS
        return True

    def forget(self, queue: QueueRef) -> None:
        """Ask the store again: the queue was deleted."""
        self._seen.pop(queue, None)


def lost(items: list[Any]) -> list[Refused]:
    """The answers for leases in a queue that is not there."""
    return [_LOST] * len(items)
