"""Makes delayed jobs claimable when their time has come, also while every worker is busy."""

from penstock.core.job import QueueRef
from penstock.stores.bounds import PROMOTE_LIMIT
from penstock.stores.protocol import Store


class Promoter:
    """Promotes due jobs in batches."""

    def __init__(self, store: Store, queue: QueueRef, limit: int = PROMOTE_LIMIT) -> None:
        self._store = store
        self._queue = queue
        self._limit = limit

    async def tick(self) -> bool:
        """Promote one batch; True when there may be more."""
        return await self._store.moves.promote(self._queue, self._limit) >= self._limit
