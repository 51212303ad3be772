"""Notifications within one process: a change made in any thread reaches the subscriptions of every loop."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from penstock.core.job import QueueRef
from penstock.stores.values import NotifiedQueues, Topic


class LocalSubscription:
    """A subscription of one event loop. A notification that comes during no wait is kept for the next one."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._notified = asyncio.Event()

    def notify(self) -> None:
        """Notify the subscriber, from any thread."""
        with suppress(RuntimeError):
            if asyncio.get_running_loop() is self._loop:
                # The waiting task goes on in the loop's next turn, without one more turn to pass this on.
                self._notified.set()
                return
        # On a closed loop nobody waits any longer.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._notified.set)

    @property
    def is_notified(self) -> bool:
        """True where a notification came since the last wait."""
        return self._notified.is_set()

    async def wait(self, timeout: float) -> bool:
        """True as soon as there is a notification; False after `timeout` seconds."""
        try:
            async with asyncio.timeout(timeout):
                await self._notified.wait()
        except TimeoutError:
            return False
        self._notified.clear()
        return True


class LocalTenantSubscription:
    """A subscription of one event loop to all queues of a tenant, with the queues it was notified of."""

    def __init__(self) -> None:
        self._subscription = LocalSubscription()
        self._lock = threading.Lock()
        self._queues: set[str] = set()
        self._for_all = False

    def notify(self, queue: str | None) -> None:
        """Notify the subscriber of one queue, or with None of all; from any thread."""
        with self._lock:
            if queue is None:
                self._for_all = True
            else:
                self._queues.add(queue)
        self._subscription.notify()

    async def wait(self, timeout: float) -> NotifiedQueues:
        """The queues of the notifications, as soon as there are any; none after `timeout` seconds."""
        if not await self._subscription.wait(timeout):
            return NotifiedQueues()
        with self._lock:
            for_all, self._for_all = self._for_all, False
            queues, self._queues = self._queues, set()
        return NotifiedQueues(frozenset(queues), for_all)


class LocalNotifier:
    """All subscriptions of one process to one store."""

    def __init__(self) -> None:
        self._subscriptions: dict[tuple[QueueRef, Topic], set[LocalSubscription]] = {}
        self._tenant_subscriptions: dict[str, set[LocalTenantSubscription]] = {}
        self._lock = threading.Lock()

    @asynccontextmanager
    async def subscribe(self, queue: QueueRef, topic: Topic) -> AsyncIterator[LocalSubscription]:
        """A subscription to one topic of a queue, for the time of the block."""
        subscription = LocalSubscription()
        with self._lock:
            self._subscriptions.setdefault((queue, topic), set()).add(subscription)
        try:
            yield subscription
        finally:
            with self._lock:
                others = self._subscriptions[queue, topic]
                others.discard(subscription)
                if not others:
                    del self._subscriptions[queue, topic]

    @asynccontextmanager
    async def subscribe_tenant(self, tenant: str) -> AsyncIterator[LocalTenantSubscription]:
        """A subscription to all queues of a tenant, for the time of the block."""
        subscription = LocalTenantSubscription()
        with self._lock:
            self._tenant_subscriptions.setdefault(tenant, set()).add(subscription)
        try:
            yield subscription
        finally:
            with self._lock:
                others = self._tenant_subscriptions[tenant]
                others.discard(subscription)
                if not others:
                    del self._tenant_subscriptions[tenant]

    def notify(self, queue: QueueRef, topic: Topic) -> None:
        """Notify the subscribers of one queue, and those of its tenant where jobs became claimable."""
        with self._lock:
            subscriptions = list(self._subscriptions.get((queue, topic), ()))
        for subscription in subscriptions:
            subscription.notify()
        if self._tenant_subscriptions and topic is Topic.READY:
            self.notify_tenant(queue.tenant, queue.name)

    def notify_tenant(self, tenant: str, queue: str | None) -> None:
        """Notify the subscribers of a tenant: of one queue, or with None of all."""
        with self._lock:
            subscriptions = list(self._tenant_subscriptions.get(tenant, ()))
        for subscription in subscriptions:
            subscription.notify(queue)

    def notify_all(self) -> None:
        """Notify every subscriber: something changed, and it is not known what."""
        with self._lock:
            subscriptions = [one for some in self._subscriptions.values() for one in some]
            of_tenants = [one for some in self._tenant_subscriptions.values() for one in some]
        for subscription in subscriptions:
            subscription.notify()
        for each in of_tenants:
            each.notify(None)

    @property
    def is_empty(self) -> bool:
        """True when nobody subscribes."""
        return not self._subscriptions and not self._tenant_subscriptions
