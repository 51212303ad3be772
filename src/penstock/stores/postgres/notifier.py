"""Notifications over LISTEN and NOTIFY: one connection listens for a store, and notifications are joined."""

import asyncio
import hashlib
import random
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Final

import psycopg

from penstock.core.errors import PenstockError
from penstock.core.job import QueueRef
from penstock.core.retry_pause import RetryPause
from penstock.stores.notifier import LocalNotifier, LocalSubscription, LocalTenantSubscription
from penstock.stores.postgres.engine import Connection, Engine
from penstock.stores.postgres.pool import cut
from penstock.stores.values import Topic

JOIN_SECONDS: Final = 0.004
"""A commit with a NOTIFY locks out all others of its kind: so there is one for many calls, on its own."""

_CONFIRM_SECONDS: Final = 1.0
_SILENCE_SECONDS: Final = 5.0
_PAUSE: Final = RetryPause(0.05, 5.0)
_POLL_SECONDS: Final = 0.25
# A notification need not be on the disk before it is delivered.
_NOTIFY: Final = """
SELECT set_config('synchronous_commit', 'off', true), pg_notify(item.channel, item.queue)
FROM unnest($1::text[], $2::text[]) AS item (channel, queue)
"""


class _Channel:
    """A channel: how many subscriptions it has, and whether the server has confirmed that we listen.

    It is of one queue, or of a tenant: then the notification names the queue.
    """

    def __init__(self, queue: QueueRef | str, topic: Topic) -> None:
        self.queue = queue
        self.topic = topic
        self.subscriptions = 0
        self.confirmed = asyncio.Event()


class PostgresNotifier:
    """The part `Notifier`. Behind a transaction pooler no connection can listen: all subscriptions are then
    notified at an interval.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._local = LocalNotifier()
        self._channels: dict[str, _Channel] = {}
        self._unsent: set[tuple[str, str]] = set()
        self._listening: asyncio.Task[None] | None = None
        self._sending: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self.clock_channel = _name(engine.address.schema, "turned")
        self.on_clock_change: Callable[[], None] = lambda: None

    def notify(self, queue: QueueRef, topics: set[Topic]) -> None:
        """Notify subscriptions of this store at once, and those of other processes within milliseconds."""
        for topic in topics:
            self._local.notify(queue, topic)
        notifications = {(self._channel(queue, topic), "") for topic in topics}
        if Topic.READY in topics:
            notifications.add((tenant_channel(self._engine.address.schema, queue.tenant), queue.name))
        self._send_soon(notifications)

    def notify_clock_change(self) -> None:
        """Notify every subscription that the clock was advanced."""
        self._local.notify_all()
        self._send_soon({(self.clock_channel, "")})

    @asynccontextmanager
    async def subscribe(self, queue: QueueRef, topic: Topic) -> AsyncIterator[LocalSubscription]:
        """Notified at once for changes of this store, and within milliseconds for those of others."""
        async with (
            self._listening_to(self._channel(queue, topic), _Channel(queue, topic)),
            self._local.subscribe(queue, topic) as subscription,
        ):
            yield subscription

    @asynccontextmanager
    async def subscribe_tenant(self, tenant: str) -> AsyncIterator[LocalTenantSubscription]:
        """As `subscribe`, over one channel for all queues of the tenant."""
        name = tenant_channel(self._engine.address.schema, tenant)
        async with (
            self._listening_to(name, _Channel(tenant, Topic.READY)),
            self._local.subscribe_tenant(tenant) as subscription,
        ):
            yield subscription

    @asynccontextmanager
    async def _listening_to(self, name: str, new: _Channel) -> AsyncIterator[None]:
        channel = self._channels.setdefault(name, new)
        channel.subscriptions += 1
        try:
            if self._listening is None:
                work = self._poll() if self._engine.address.is_pooled else self._listen()
                self._listening = asyncio.create_task(work)
            self._changed.set()
            # Changes from the confirmation on are notified, and the caller looks for itself after that. Where
            # the confirmation does not come in time, the subscription is notified once when it comes.
            with suppress(TimeoutError):
                async with asyncio.timeout(_CONFIRM_SECONDS):
                    await channel.confirmed.wait()
            yield
        finally:
            channel.subscriptions -= 1
            if not channel.subscriptions:
                del self._channels[name]
                self._changed.set()

    async def close(self) -> None:
        """Send the notifications that wait, and stop listening."""
        if self._sending is not None:
            await self._sending
        listening, self._listening = self._listening, None
        if listening is not None:
            listening.cancel()
            await asyncio.wait([listening])

    def _channel(self, queue: QueueRef, topic: Topic) -> str:
        return channel_of(self._engine.address.schema, queue, topic)

    def _send_soon(self, notifications: set[tuple[str, str]]) -> None:
        self._unsent |= notifications
        if self._sending is None or self._sending.done():
            self._sending = asyncio.create_task(self._send())

    async def _send(self) -> None:
        # The first notification goes at once; those that come meanwhile go together, a little later.
        while self._unsent:
            batch, self._unsent = sorted(self._unsent), set()
            # A subscriber that misses a notification still polls.
            with suppress(PenstockError):
                await self._engine.run(
                    _NOTIFY, [channel for channel, _ in batch], [queue for _, queue in batch]
                )
            await asyncio.sleep(JOIN_SECONDS)

    async def _poll(self) -> None:
        while True:
            for channel in self._channels.values():
                channel.confirmed.set()
            self._local.notify_all()
            with suppress(TimeoutError):
                async with asyncio.timeout(_POLL_SECONDS):
                    self._changed.clear()
                    await self._changed.wait()

    async def _listen(self) -> None:
        failures = 0
        while True:
            connection: Connection | None = None
            begun = time.monotonic()
            try:
                connection = await self._engine.connect("penstock-listen")
                await self._receive(connection)
            except (psycopg.Error, OSError):
                # A connection that lasted was lost by accident; one that did not would be lost again at once.
                failures = 1 if time.monotonic() - begun > _PAUSE.longest else failures + 1
            finally:
                if connection is not None:
                    await connection.close()
            for channel in self._channels.values():
                channel.confirmed.clear()
            # Notifications may have been missed.
            self._local.notify_all()
            await asyncio.sleep(_PAUSE.after(failures, random.uniform))

    async def _receive(self, connection: Connection) -> None:
        """Pass on the notifications that arrive; ends only by an error."""
        connection.add_notify_handler(lambda notify: self._on_notify(notify.channel, notify.payload))
        listened: set[str] = set()
        while True:
            self._changed.clear()
            wanted = {self.clock_channel, *self._channels}
            # After a silence this also shows that the connection is alive.
            commands = [f'LISTEN "{name}"' for name in wanted - listened]
            commands += [f'UNLISTEN "{name}"' for name in listened - wanted]
            # Not by a timeout of the call: the driver would go on waiting for a server that does not answer.
            watch = asyncio.get_running_loop().call_later(_SILENCE_SECONDS, cut, connection)
            try:
                await connection.execute("; ".join(commands or ["SELECT 1"]).encode())
            finally:
                watch.cancel()
            listened = wanted
            for name in listened & set(self._channels):
                channel = self._channels[name]
                if not channel.confirmed.is_set():
                    channel.confirmed.set()
                    self._notify_local(channel, None)
            await self._until_readable(connection)

    async def _until_readable(self, connection: Connection) -> None:
        loop = asyncio.get_running_loop()
        # Some notifications may have come with the answer to the last command.
        self._take(connection)
        while not self._changed.is_set():
            is_readable = asyncio.Event()
            loop.add_reader(connection.fileno(), is_readable.set)
            waits = [asyncio.ensure_future(each.wait()) for each in (is_readable, self._changed)]
            try:
                done, _ = await asyncio.wait(
                    waits, timeout=_SILENCE_SECONDS, return_when=asyncio.FIRST_COMPLETED
                )
            finally:
                loop.remove_reader(connection.fileno())
                for each in waits:
                    each.cancel()
            if not done:
                return
            if is_readable.is_set():
                connection.pgconn.consume_input()
                self._take(connection)

    def _take(self, connection: Connection) -> None:
        while (notify := connection.pgconn.notifies()) is not None:
            self._on_notify(notify.relname.decode(), notify.extra.decode())

    def _on_notify(self, name: str, payload: str) -> None:
        if name == self.clock_channel:
            self.on_clock_change()
            self._local.notify_all()
        channel = self._channels.get(name)
        if channel is not None:
            self._notify_local(channel, payload or None)

    def _notify_local(self, channel: _Channel, queue: str | None) -> None:
        if isinstance(channel.queue, QueueRef):
            self._local.notify(channel.queue, channel.topic)
        else:
            self._local.notify_tenant(channel.queue, queue)


def channel_of(schema: str, queue: QueueRef, topic: Topic) -> str:
    """The channel that subscriptions of a queue listen on."""
    return _name(schema, queue.tenant, queue.name, topic)


def tenant_channel(schema: str, tenant: str) -> str:
    """The channel on which a tenant's subscribers learn of queues with a job that became claimable."""
    # No queue has an empty name.
    return _name(schema, tenant, "", Topic.READY)


def _name(*parts: str) -> str:
    """A hash as the name of a channel: PostgreSQL allows 63 letters, and names of queues may be longer."""
    return "penstock_" + hashlib.blake2b("/".join(parts).encode(), digest_size=16).hexdigest()
