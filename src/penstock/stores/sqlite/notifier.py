"""Notifications of the SQLite store: of this process at once, of others once the file has changed."""

from contextlib import AbstractAsyncContextManager

from penstock.core.job import QueueRef
from penstock.stores.protocol import Subscription, TenantSubscription
from penstock.stores.sqlite.backend import Backend
from penstock.stores.values import Topic


class SqliteNotifier:
    """Subscribes to what is committed to the file."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def subscribe(self, queue: QueueRef, topic: Topic) -> AbstractAsyncContextManager[Subscription]:
        """Notified at once for changes of this process, and within milliseconds for those of others."""
        return self._backend.notifier.subscribe(queue, topic)

    def subscribe_tenant(self, tenant: str) -> AbstractAsyncContextManager[TenantSubscription]:
        """As `subscribe`; it is not known which queues other processes changed."""
        return self._backend.notifier.subscribe_tenant(tenant)
