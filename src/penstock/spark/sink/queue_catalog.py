"""The queues that rows are for, as the store has them."""

from collections.abc import Sequence
from difflib import get_close_matches
from functools import partial

from penstock.client.retrying import RetryingCaller
from penstock.core.errors import UnknownQueueError
from penstock.core.job import QueueRef
from penstock.spark.options import SourceOptions
from penstock.spark.sink.queue_refs import NOWHERE
from penstock.spark.sink.values import Flaw, Flaws
from penstock.stores.protocol import Store
from penstock.stores.values import QueueInfo


class QueueCatalog:
    """Looks each queue up once. A new one is made if the write may declare queues, and not known otherwise.

    A row for a queue that is not known is bad; the queue of the options has to be.
    """

    def __init__(self, store: Store, options: SourceOptions, persistence: RetryingCaller) -> None:
        self.known: dict[QueueRef, QueueInfo] = {}
        self._unknown: dict[QueueRef, str] = {}
        self._store = store
        self._retrying = persistence
        self._declares = options.declare
        self._is_dry = options.dry_run
        self._given = QueueRef(options.tenants[0], options.queues[0]) if options.queues else None

    async def look_up(self, refs: Sequence[QueueRef], flaws: Flaws) -> None:
        """Get to know these queues, and note the rows for those that are not there."""
        for queue in set(refs) - self.known.keys() - self._unknown.keys() - {NOWHERE}:
            info = await self._retrying.call(partial(self._look, queue))
            if info is not None:
                self.known[queue] = info
            elif queue == self._given:
                raise UnknownQueueError(await self._explained(queue))
            else:
                self._unknown[queue] = f"_queue: {await self._explained(queue)}"
        if self._unknown:
            for at, queue in enumerate(refs):
                if queue in self._unknown:
                    flaws.setdefault(at, Flaw("_queue", self._unknown[queue]))

    async def _look(self, queue: QueueRef) -> QueueInfo | None:
        if self._declares and not self._is_dry:
            return await self._store.queues.open_queue(queue)
        # A dry run makes no queue, and goes on as if it had.
        return await self._store.queues.find_queue(queue) or (QueueInfo(queue, 0) if self._declares else None)

    async def _explained(self, queue: QueueRef) -> str:
        there = [info.queue.name for info in await self._store.queues.list_queues(queue.tenant)]
        near = get_close_matches(queue.name, there, 1)
        hint = f"did you mean {near[0]!r}?" if near else "the option declare=true makes new ones"
        return f"no queue of tenant {queue.tenant!r} is named {queue.name!r}: {hint}"
