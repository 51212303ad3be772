"""Queues that are not there: a call that could only find nothing in them is answered without making them."""

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from penstock.core.job import QueueRef
from penstock.core.outcomes import Claims, Refusal, Refused
from penstock.stores.protocol import Queues

MOST_KNOWN: Final = 10_000
KNOWN_SECONDS: Final = 10.0
"""How long a queue that was seen counts as there: another process may have deleted it since."""
_LOST: Final = Refused(Refusal.LOST)
_MISSING: Final = Refused(Refusal.MISSING)


class KnownQueues:
    """Which queues are there. One that was seen is not asked for again within KNOWN_SECONDS."""

    def __init__(self, store: Queues, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._clock = clock
        self._seen: dict[QueueRef, float] = {}

    async def has(self, queue: QueueRef) -> bool:
        """True for a queue that is there."""
        if self._clock() < self._seen.get(queue, 0.0):
            return True
        self._seen.pop(queue, None)
        if await self._store.queue(queue) is None:
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


def _each(name: str, answer: Refused) -> Callable[[Mapping[str, Any]], Any]:
    return lambda given: [answer] * len(given[name])


def _always(answer: Any) -> Callable[[Mapping[str, Any]], Any]:
    return lambda _: answer


ANSWERS: Final[Mapping[str, Callable[[Mapping[str, Any]], Any]]] = {
    "claim": _always(Claims()),
    "heartbeat": _each("beats", _LOST),
    "progress": _each("reports", _LOST),
    "settle": _each("settlements", _LOST),
    "expire": _each("expiries", _LOST),
    "spawn": _always(_LOST),
    "cancel": _each("ids", _MISSING),
    "redrive": _each("ids", _MISSING),
    "delete": _each("ids", _MISSING),
    "child_ended": _each("endings", _MISSING),
    "adopt": _each("adoptions", _MISSING),
    "promote": _always(0),
    "prune": _always(0),
    "trim": _always(0),
    "forget_readers": _always(0),
    "relayed": _always(None),
    "expired": _always([]),
    "due_schedules": _always([]),
    "keys": _always([]),
    "readers": _always([]),
    "fire": _always(False),
    "remove_schedule": _always(False),
    "pause_schedule": _always(False),
    "drop_reader": _always(False),
}
"""The calls of a store's protocol that make no queue, with what each answers where there is none."""
