"""The duty that folds the events of a queue into its rollups, and removes the old ones."""

import time
from typing import Final

from penstock.client.event_folding import fold_events
from penstock.core.job import QueueRef
from penstock.stores.protocol import Store

EXPIRE_SECONDS: Final = 3_600.0
"""How often old rollups are looked for: a queue in which nothing happens costs few calls."""


class Roller:
    """Folds what is new, a page at a time."""

    def __init__(self, store: Store, queue: QueueRef) -> None:
        self._store = store
        self._queue = queue
        self._expired_at = time.monotonic() - EXPIRE_SECONDS

    async def tick(self) -> bool:
        """Fold one page; True when there may be more."""
        _, newest = await self._store.events.event_range(self._queue)
        if not newest:
            # One call for a queue in which nothing ever happened: a process may sweep ten thousand of them.
            return False
        if await fold_events(self._store, self._queue):
            return True
        if time.monotonic() - self._expired_at < EXPIRE_SECONDS:
            return False
        if await self._store.rollups.expire_rollups(self._queue, await self._store.clock.now()):
            return True
        self._expired_at = time.monotonic()
        return False
