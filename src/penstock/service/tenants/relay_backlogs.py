"""Jobs that queues have for other queues and that cannot be brought there yet, as when those are full."""

import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from penstock.client.relay import MOST_HELD
from penstock.core.errors import StoreError
from penstock.core.job import NewJob, QueueRef
from penstock.stores.portions import PORTION
from penstock.stores.protocol import Flows

COUNTED_SECONDS: Final = 1.0
"""How long a count of another queue's relay entries is used, and a second more for each so many of them."""
_ENTRIES_PER_SECOND: Final = 1_000
_COUNTED_AT_ONCE: Final = 8
"""Other queues that one request counts: the rest of them stand with their older counts."""


class RelayBacklogs:
    """Counts jobs by the queue that they go to, over all queues in which this process saw some stay.

    `exists` says whether a queue is there: one that was deleted is not to come back by being asked.
    """

    def __init__(
        self,
        flows: Flows,
        exists: Callable[[QueueRef], Awaitable[bool]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._flows = flows
        self._exists = exists
        self._clock = clock
        self._known: dict[str, dict[str, tuple[float, Counter[str]]]] = {}

    async def on_their_way(self, tenant: str, source: str | None = None) -> Counter[str]:
        """How many jobs go to each queue. Those of `source` are counted now, others now and then."""
        if source is not None:
            await self.count(QueueRef(tenant, source))
        now = self._clock()
        old = [name for name, (until, _) in self._known.get(tenant, {}).items() if until <= now]
        for name in old[:_COUNTED_AT_ONCE]:
            # A queue that cannot be reached keeps its count, and no job of other queues waiting.
            with suppress(StoreError):
                await self.count(QueueRef(tenant, name))
        return sum((counted for _, counted in self._known.get(tenant, {}).values()), Counter())

    async def count(self, source: QueueRef) -> None:
        """Count what this queue has for other queues; it is remembered while there is anything."""
        found: Counter[str] = Counter()
        after, is_all = 0, not await self._exists(source)
        while not is_all and sum(found.values()) < MOST_HELD:
            entries = await self._flows.list_relay_entries(source, PORTION, after=after)
            found.update(entry.queue for entry in entries if isinstance(entry.what, NewJob))
            is_all = len(entries) < PORTION
            after = entries[-1].number if entries else after
        known = self._known.setdefault(source.tenant, {})
        known.pop(source.name, None)
        if found:
            seconds = COUNTED_SECONDS + sum(found.values()) / _ENTRIES_PER_SECOND
            known[source.name] = self._clock() + seconds, found
        elif not known:
            del self._known[source.tenant]
