"""Subscriptions that the streams of all clients share: one listener for a topic, however many want it."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final, Protocol

from penstock.core.errors import PenstockError
from penstock.core.job import QueueRef
from penstock.service.errors import BusyError
from penstock.stores.protocol import Notifier
from penstock.stores.wire import QueueTopic

MOST_TOPICS: Final = 1_000
"""Topics of one tenant that all of its streams subscribe to: each has a listener, and all may be notified."""
MOST_SUBSCRIBED: Final = 10_000
"""The same, counted once for each stream: a notification goes to all streams of its topic."""
LISTEN_SECONDS: Final = 300.0


class TopicSubscriber(Protocol):
    """One stream, as the listeners of its topics see it."""

    def notify(self, topic: QueueTopic) -> None:
        """Something may have happened there."""
        ...

    def fail(self) -> None:
        """A listener ended: the client has to subscribe anew."""
        ...


class SharedSubscriptions:
    """The listeners of a store's topics, each open while some stream subscribes to it."""

    def __init__(self, notifier: Notifier) -> None:
        self._notifier = notifier
        self._listeners: dict[tuple[str, QueueTopic], _Listener] = {}
        self._topics: Counter[str] = Counter()
        self._subscribed: Counter[str] = Counter()
        self._ending: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def subscribe(
        self, tenant: str, topics: Sequence[QueueTopic], subscriber: TopicSubscriber
    ) -> AsyncIterator[None]:
        """Notify the subscriber for the time of the block; BusyError where the tenant has too many."""
        wanted = dict.fromkeys(topics)
        self._check(tenant, list(wanted))
        joined = [self._joined(tenant, topic, subscriber) for topic in wanted]
        try:
            for listener in joined:
                await listener.is_open.wait()
            yield
        finally:
            for listener in joined:
                self._leave(listener, subscriber)

    async def close(self) -> None:
        """Wait for the listeners that nobody wants any more."""
        await asyncio.gather(*self._ending, return_exceptions=True)

    def _check(self, tenant: str, wanted: Sequence[QueueTopic]) -> None:
        new = sum((tenant, topic) not in self._listeners for topic in wanted)
        for what, there, more, most in (
            ("topics", self._topics[tenant], new, MOST_TOPICS),
            ("subscriptions", self._subscribed[tenant], len(wanted), MOST_SUBSCRIBED),
        ):
            if there + more > most:
                raise BusyError(f"streams of the tenant have {there} {what} already, of at most {most}")

    def _joined(self, tenant: str, topic: QueueTopic, subscriber: TopicSubscriber) -> "_Listener":
        listener = self._listeners.get((tenant, topic))
        if listener is None:
            listener = self._listeners[tenant, topic] = _Listener(tenant, topic)
            self._topics[tenant] += 1
            listener.task = asyncio.create_task(self._listen(listener))
        listener.subscribers[subscriber] = None
        self._subscribed[tenant] += 1
        return listener

    def _leave(self, listener: "_Listener", subscriber: TopicSubscriber) -> None:
        del listener.subscribers[subscriber]
        _decrement(self._subscribed, listener.tenant)
        if not listener.subscribers:
            self._forget(listener)
            if listener.task is not None and not listener.task.done():
                listener.task.cancel()
                self._ending.add(listener.task)
                listener.task.add_done_callback(self._ending.discard)

    async def _listen(self, listener: "_Listener") -> None:
        queue = QueueRef(listener.tenant, listener.topic.queue)
        try:
            # The streams of a subscription that fails end, and their clients subscribe anew.
            with suppress(PenstockError, OSError):
                async with self._notifier.subscribe(queue, listener.topic.topic) as subscription:
                    listener.is_open.set()
                    while True:
                        if await subscription.wait(LISTEN_SECONDS):
                            for subscriber in listener.subscribers:
                                subscriber.notify(listener.topic)
        finally:
            # Whoever comes next opens another one.
            self._forget(listener)
            listener.is_open.set()
            for subscriber in listener.subscribers:
                subscriber.fail()

    def _forget(self, listener: "_Listener") -> None:
        name = (listener.tenant, listener.topic)
        if self._listeners.get(name) is listener:
            del self._listeners[name]
            _decrement(self._topics, listener.tenant)


class _Listener:
    """One topic of one queue, and the streams that subscribe to it."""

    def __init__(self, tenant: str, topic: QueueTopic) -> None:
        self.tenant = tenant
        self.topic = topic
        self.subscribers: dict[TopicSubscriber, None] = {}
        self.is_open = asyncio.Event()
        self.task: asyncio.Task[None] | None = None


def _decrement(counts: Counter[str], name: str) -> None:
    counts[name] -= 1
    if not counts[name]:
        del counts[name]
