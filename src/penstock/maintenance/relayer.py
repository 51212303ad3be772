"""The duty that carries over what a queue has for others, also when the process that wrote it died."""

from penstock.client.relay import relay
from penstock.core.job import QueueRef
from penstock.stores.protocol import Store

__all__ = ["Relayer", "relay"]


class Relayer:
    """Carries relay entries over in batches."""

    def __init__(self, store: Store, queue: QueueRef) -> None:
        self._store = store
        self._queue = queue

    async def tick(self) -> bool:
        """Carry one batch over; True when it did: entries for the queue itself can leave more to carry."""
        return await relay(self._store, self._queue) > 0
