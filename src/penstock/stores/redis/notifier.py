"""Notifications by publish and subscribe: one subscribed connection for all subscriptions of a store."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

from penstock.core.errors import StoreError
from penstock.core.job import QueueRef
from penstock.core.retry_pause import RetryPause
from penstock.stores.notifier import LocalNotifier, LocalSubscription, LocalTenantSubscription
from penstock.stores.redis.backend import Backend
from penstock.stores.redis.connection import Connection, ReplyError, pack
from penstock.stores.redis.keys import keys_of, queue_of_channel, ready_channels, turned
from penstock.stores.values import Topic

_CONFIRM_SECONDS: Final = 1.0
_SILENCE_SECONDS: Final = 5.0
_PAUSE: Final = RetryPause(0.05, 5.0)
_EVERY: Final = b"penstock:*"
_MESSAGE_KINDS: Final = frozenset({b"message", b"subscribe", b"pmessage", b"psubscribe"})


class _Channel:
    """A channel, how many subscribe to it here, and whether the server has confirmed the subscription."""

    def __init__(self, queue: QueueRef, topic: Topic) -> None:
        self.queue = queue
        self.topic = topic
        self.subscribers = 0
        self.confirmed = asyncio.Event()


class _Pattern:
    """A pattern for the channels of all queues of a tenant, and the same of it as of a channel."""

    def __init__(self, tenant: str) -> None:
        self.tenant = tenant
        self.subscribers = 0
        self.confirmed = asyncio.Event()


class RedisNotifier:
    """The subscriptions of one store. Notifications are hints: a failure here only makes a worker poll."""

    def __init__(self, backend: Backend) -> None:
        self._server = backend.server
        self._notifier = LocalNotifier()
        self._channels: dict[bytes, _Channel] = {}
        self._patterns: dict[bytes, _Pattern] = {}
        self._is_refused = False
        """The server refused something since there are patterns: its user may have no right to those."""
        self._connection: Connection | None = None
        self._listening: asyncio.Task[None] | None = None
        self._turned = b""
        self._has_received = False
        self._failures = 0

    @asynccontextmanager
    async def subscribe(self, queue: QueueRef, topic: Topic) -> AsyncIterator[LocalSubscription]:
        """A subscription for the time of the block."""
        name = keys_of(queue).channel(topic, self._server.database).encode()
        channel = self._channels.setdefault(name, _Channel(queue, topic))
        channel.subscribers += 1
        try:
            if self._listening is None:
                self._listening = asyncio.create_task(self._listen())
            elif channel.subscribers == 1:
                self._send("SUBSCRIBE", name)
            # What happens from the confirmation on is received, and the caller looks for itself after that.
            # A confirmation that comes late notifies the subscription, which counts from the start.
            with suppress(TimeoutError):
                async with asyncio.timeout(_CONFIRM_SECONDS):
                    await channel.confirmed.wait()
            async with self._notifier.subscribe(queue, topic) as subscription:
                yield subscription
        finally:
            channel.subscribers -= 1
            if not channel.subscribers:
                del self._channels[name]
                self._send("UNSUBSCRIBE", name)

    @asynccontextmanager
    async def subscribe_tenant(self, tenant: str) -> AsyncIterator[LocalTenantSubscription]:
        """A subscription to all queues of a tenant, for the time of the block."""
        name = ready_channels(tenant, self._server.database).encode()
        pattern = self._patterns.setdefault(name, _Pattern(tenant))
        pattern.subscribers += 1
        try:
            if self._listening is None:
                self._listening = asyncio.create_task(self._listen())
            elif pattern.subscribers == 1:
                self._send("PSUBSCRIBE", _EVERY if self._is_refused else name)
            with suppress(TimeoutError):
                async with asyncio.timeout(_CONFIRM_SECONDS):
                    await pattern.confirmed.wait()
            async with self._notifier.subscribe_tenant(tenant) as subscription:
                yield subscription
        finally:
            pattern.subscribers -= 1
            if not pattern.subscribers:
                del self._patterns[name]
                self._send("PUNSUBSCRIBE", name)

    async def publish(self, queue: QueueRef, topic: Topic) -> None:
        """Notify the subscribers of a queue, wherever they are."""
        with suppress(StoreError):
            await self._server.command("PUBLISH", keys_of(queue).channel(topic, self._server.database), "")

    def notify_all(self) -> None:
        """Notify every subscriber of this store."""
        self._notifier.notify_all()

    async def close(self) -> None:
        """Stop listening."""
        listening, self._listening = self._listening, None
        if listening is not None:
            listening.cancel()
            await asyncio.wait([listening])

    def _send(self, *command: str | bytes) -> None:
        # Without a connection nothing is sent: the next one begins by subscribing to all that is wanted.
        if self._connection is not None:
            self._connection.send_nowait(pack([command]))

    async def _listen(self) -> None:
        while True:
            self._failures = min(self._failures + 1, 10)
            with suppress(StoreError, ReplyError, OSError):
                connection = self._connection = await self._server.connect(self._on_push)
                try:
                    await self._keep_listening(connection)
                finally:
                    self._connection = None
                    connection.close()
            for channel in self._channels.values():
                channel.confirmed.clear()
            for pattern in self._patterns.values():
                pattern.confirmed.clear()
            # Notifications may have been missed.
            self._notifier.notify_all()
            await asyncio.sleep(_PAUSE.after(self._failures, random.uniform))

    async def _keep_listening(self, connection: Connection) -> None:
        """Subscribe, and ask a connection that is silent whether it lives; ends when it does not."""
        self._turned = turned(self._server.database).encode()
        self._send("SUBSCRIBE", self._turned, *self._channels)
        # A user without the right to a tenant's pattern may have that to all channels.
        if self._patterns:
            self._send("PSUBSCRIBE", *([_EVERY] if self._is_refused else self._patterns))
        is_asked = False
        while True:
            self._has_received = False
            await asyncio.wait([connection.closed], timeout=_SILENCE_SECONDS)
            if connection.closed.done() or (is_asked and not self._has_received):
                return
            is_asked = not self._has_received
            if is_asked:
                self._send("PING")

    def _on_push(self, message: Any) -> None:
        self._has_received = True
        if isinstance(message, ReplyError) and self._connection is not None:
            # This user may not listen. Someone may change that.
            self._is_refused = bool(self._patterns) and not self._is_refused
            self._connection.close()
        if not isinstance(message, list) or message[0] not in _MESSAGE_KINDS:
            return
        self._failures = 0
        if message[0] in (b"pmessage", b"psubscribe"):
            self._on_pattern_message(message)
            return
        if message[:2] == [b"message", self._turned]:
            self._notifier.notify_all()
        channel = self._channels.get(message[1])
        if channel is None:
            return
        if message[0] == b"subscribe":
            channel.confirmed.set()
        self._notifier.notify(channel.queue, channel.topic)

    def _on_pattern_message(self, message: list[Any]) -> None:
        if message[1] == _EVERY:
            for name in self._patterns:
                start, _, end = name.partition(b"*")
                channel = message[2] if message[0] == b"pmessage" else name
                if channel.startswith(start) and channel.endswith(end):
                    self._on_pattern_message([message[0], name, channel])
            return
        pattern = self._patterns.get(message[1])
        if pattern is None:
            return
        if message[0] == b"psubscribe":
            pattern.confirmed.set()
            self._notifier.notify_tenant(pattern.tenant, None)
        else:
            self._notifier.notify_tenant(pattern.tenant, queue_of_channel(message[2].decode()))
