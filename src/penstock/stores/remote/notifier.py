"""Notifications over a stream: one answer without an end for all subscriptions of a tenant."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import msgspec

from penstock.core.errors import PenstockError
from penstock.core.job import QueueRef
from penstock.core.retry_pause import RetryPause
from penstock.stores.notifier import LocalNotifier, LocalSubscription, LocalTenantSubscription
from penstock.stores.remote.connection import Connection
from penstock.stores.values import Topic
from penstock.stores.wire import ANY_QUEUE, MOST_SUBSCRIPTIONS, QueueTopic, Subscriptions

CONFIRM_SECONDS: Final = 1.0
SILENCE_SECONDS: Final = 40.0
"""A service shows more often than this that its stream lives."""
LINGER_SECONDS: Final = 10.0
"""How long a stream without subscribers is kept: the next wait for a result uses it."""
PAUSE: Final = RetryPause(0.05, 5.0)

Listen = Callable[[bytes, Callable[[bytes], None]], Awaitable[Connection]]
"""Opens a stream for a packed `Subscriptions`; the function is called with each piece that comes."""


class RemoteNotifier:
    """The subscriptions of one store. Notifications are hints: a failure here only makes a worker poll."""

    def __init__(self, listen: Listen) -> None:
        self._listen = listen
        self._local = LocalNotifier()
        self._streams: dict[str, _TenantStream] = {}

    @asynccontextmanager
    async def subscribe(self, queue: QueueRef, topic: Topic) -> AsyncIterator[LocalSubscription]:
        """A subscription for the time of the block, fed by the service's stream."""
        async with (
            self._listening_to(queue.tenant, QueueTopic(queue.name, topic)),
            self._local.subscribe(queue, topic) as subscription,
        ):
            yield subscription

    @asynccontextmanager
    async def subscribe_tenant(self, tenant: str) -> AsyncIterator[LocalTenantSubscription]:
        """A subscription to those queues of the tenant that the token is for, for the time of the block."""
        async with (
            self._listening_to(tenant, QueueTopic(ANY_QUEUE, Topic.READY)),
            self._local.subscribe_tenant(tenant) as subscription,
        ):
            yield subscription

    @asynccontextmanager
    async def _listening_to(self, tenant: str, topic: QueueTopic) -> AsyncIterator[None]:
        stream = self._streams.get(tenant)
        if stream is None:
            stream = self._streams[tenant] = _TenantStream(tenant, self._listen, self._local)
        stream.want(topic)
        try:
            # Once the stream stands nothing is missed, and the caller looks for itself after that.
            await stream.tried()
            yield
        finally:
            stream.leave(topic)

    async def close(self) -> None:
        """Stop listening."""
        for stream in self._streams.values():
            await stream.close()
        self._streams.clear()


class _TenantStream:
    """The stream of one tenant. It is opened anew for a subscription that it does not have yet."""

    def __init__(self, tenant: str, listen: Listen, local: LocalNotifier) -> None:
        self._loop = asyncio.get_running_loop()
        self._tenant = tenant
        self._listen = listen
        self._local = local
        self._left_at = 0.0
        self._wanted: dict[QueueTopic, int] = {}
        self._subscribed: frozenset[QueueTopic] = frozenset()
        self._changed = asyncio.Event()
        self._tried = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._rest = b""
        self._is_confirmed = False
        self._is_silent = True
        self._failures = 0

    def want(self, topic: QueueTopic) -> None:
        """Count one more subscriber."""
        self._wanted[topic] = self._wanted.get(topic, 0) + 1
        if topic not in self._subscribed:
            self._tried.clear()
            self._changed.set()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())

    def leave(self, topic: QueueTopic) -> None:
        """Count one subscriber less."""
        self._wanted[topic] -= 1
        if not self._wanted[topic]:
            del self._wanted[topic]
            self._left_at = self._loop.time()
            self._changed.set()

    async def tried(self) -> None:
        """Wait until the stream stands, or cannot be had for now; not for long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(CONFIRM_SECONDS):
                await self._tried.wait()

    async def close(self) -> None:
        """Stop listening."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        while self._wanted:
            connection: Connection | None = None
            try:
                connection = await self._opened()
                await self._keep_listening(connection)
            except (PenstockError, OSError):
                self._failures = min(self._failures + 1, 10)
            finally:
                if connection is not None:
                    connection.close()
            is_lost = self._subscribed.issuperset(self._wanted)
            self._subscribed = frozenset()
            if self._failures:
                # Subscribers go on without the stream: they poll until the next one stands.
                self._tried.set()
            if is_lost or self._failures:
                # Clients that lost a service together do not return together.
                await asyncio.sleep(PAUSE.after(self._failures, random.uniform))

    async def _opened(self) -> Connection:
        self._changed.clear()
        self._tried.clear()
        self._rest, self._is_confirmed, self._is_silent = b"", False, True
        wanted = frozenset(list(self._wanted)[-MOST_SUBSCRIPTIONS:])
        self._subscribed = wanted
        body = msgspec.msgpack.encode(Subscriptions(self._tenant, list(wanted)))
        return await self._listen(body, self._on_push)

    async def _keep_listening(self, connection: Connection) -> None:
        """Until the connection is silent or lost, other subscriptions are wanted, or none for a while."""
        silent_at = self._loop.time() + SILENCE_SECONDS
        while self._subscribed.issuperset(list(self._wanted)[-MOST_SUBSCRIPTIONS:]):
            now = self._loop.time()
            if not self._is_silent:
                self._is_silent, silent_at = True, now + SILENCE_SECONDS
            ends_at = silent_at if self._wanted else min(silent_at, self._left_at + LINGER_SECONDS)
            if ends_at <= now:
                return
            changed = asyncio.ensure_future(self._changed.wait())
            either: list[asyncio.Future[Any]] = [changed, connection.closed]
            try:
                await asyncio.wait(either, timeout=ends_at - now, return_when=asyncio.FIRST_COMPLETED)
            finally:
                changed.cancel()
            self._changed.clear()
            if connection.closed.done():
                raise ConnectionError("the stream broke off")

    def _on_push(self, piece: bytes) -> None:
        """Some lines of the stream: notifications, and null once all is subscribed and now and then after."""
        self._is_silent = False
        *lines, self._rest = (self._rest + piece).split(b"\n")
        for line in lines:
            notification = msgspec.json.decode(line, type=QueueTopic | None)
            if notification is not None:
                self._notify(notification)
            elif not self._is_confirmed:
                self._is_confirmed, self._failures = True, 0
                # Notifications may have been missed before.
                for topic in self._subscribed:
                    self._notify(topic)
                self._tried.set()

    def _notify(self, topic: QueueTopic) -> None:
        if topic.queue == ANY_QUEUE:
            self._local.notify_tenant(self._tenant, None)
        else:
            self._local.notify(QueueRef(self._tenant, topic.queue), topic.topic)
