"""Notifications of a process's own queues, while these are few: what they tell of is looked at soon."""

import asyncio
from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import Final

from penstock.core.job import QueueRef
from penstock.maintenance.attempts import Attempts
from penstock.stores.protocol import Store
from penstock.stores.values import Topic

MOST_LISTENED: Final = 16
"""Queues that are listened to. Where there are more, the store is asked more often instead."""
QUIET: Final = 1.0
"""Seconds in which a queue is not listened to after a notification: a busy one has them all the time."""


class Listeners:
    """Two tasks for each of a few queues: schedules and relay entries may come with either topic."""

    def __init__(
        self, store: Store, changed: Callable[[QueueRef], None], attempts: Attempts, tick: Callable[[], float]
    ) -> None:
        self._store = store
        self._changed = changed
        self._attempts = attempts
        self._tick = tick
        self._received: dict[QueueRef, list[asyncio.Task[None]]] = {}
        self._group: asyncio.TaskGroup | None = None

    def start(self, group: asyncio.TaskGroup, queues: Iterable[QueueRef]) -> None:
        """Listen to these queues, in tasks of this group."""
        self._group = group
        self.listen(queues)

    def listen(self, queues: Iterable[QueueRef]) -> None:
        """Listen to these queues too, as far as there are not too many."""
        for queue in queues:
            if self._group is None or len(self._received) >= MOST_LISTENED:
                return
            if queue in self._received:
                continue
            topics = (Topic.READY, Topic.ENDED)
            self._received[queue] = [self._group.create_task(self._listen(queue, each)) for each in topics]

    def leave(self, queue: QueueRef) -> None:
        """Listen to this queue no more."""
        for task in self._received.pop(queue, ()):
            task.cancel()

    def hear_all(self, queues: Collection[QueueRef]) -> bool:
        """True when all of these are listened to."""
        return len(queues) <= len(self._received) and self._received.keys() >= set(queues)

    async def _listen(self, queue: QueueRef, topic: Topic) -> None:
        about: dict[str, object] = {"tenant": queue.tenant, "queue": queue.name}
        while True:
            await self._attempts.attempt("listening", partial(self._hear, queue, topic), about)
            await asyncio.sleep(min(QUIET, self._tick()))

    async def _hear(self, queue: QueueRef, topic: Topic) -> None:
        """Hear one notification. Then nobody listens for a while: every worker of a busy queue would hear of
        each call of every other."""
        async with self._store.notifier.subscribe(queue, topic) as notified:
            # Something may have come since the last time.
            self._changed(queue)
            while not await notified.wait(60.0):
                pass
        self._changed(queue)
