"""Notifications of the memory store: within its process, from every thread."""

from contextlib import AbstractAsyncContextManager

from penstock.core.job import QueueRef
from penstock.stores.memory.backend import Backend
from penstock.stores.protocol import Subscription, TenantSubscription
from penstock.stores.values import Topic


class MemoryNotifier:
    """Subscribes to what the parts of the store change."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def subscribe(self, queue: QueueRef, topic: Topic) -> AbstractAsyncContextManager[Subscription]:
        return self._backend.notifier.subscribe(queue, topic)

    def subscribe_tenant(self, tenant: str) -> AbstractAsyncContextManager[TenantSubscription]:
        return self._backend.notifier.subscribe_tenant(tenant)
