"""Bells over LISTEN and NOTIFY: one connection listens for a store, and notifications are joined."""

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
from penstock.stores.bells import Belfry, LocalBell, LocalQueueBell
from penstock.stores.postgres.engine import Connection, Engine
from penstock.stores.postgres.pool import cut
from penstock.stores.values import Topic

JOIN_SECONDS: Final = 0.004
"""A commit with a NOTIFY locks out all others of its kind: so there is one for many calls, on its own."""

_CONFIRM_SECONDS: Final = 1.0
_SILENCE_SECONDS: Final = 5.0
_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 5.0
_POLL_SECONDS: Final = 0.25
# A ring need not be on the disk before it is heard.
_NOTIFY: Final = """
SELECT set_config('synchronous_commit', 'off', true), pg_notify(ring.channel, ring.queue)
FROM unnest($1::text[], $2::text[]) AS ring (channel, queue)
"""


class _Channel:
    """A channel that bells hang on, how many, and whether the server has confirmed that we listen.

    Of one queue, or of a tenant: then the notification names the queue.
    """

    def __init__(self, queue: QueueRef | str, topic: Topic) -> None:
        self.queue = queue
        self.topic = topic
        self.bells = 0
        self.confirmed = asyncio.Event()


class Wakeups:
    """The bells of one store. Behind a transaction pooler nobody can listen: bells then ring by the clock."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._belfry = Belfry()
        self._channels: dict[str, _Channel] = {}
        self._wanted: set[tuple[str, str]] = set()
        self._listening: asyncio.Task[None] | None = None
        self._sending: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self.turned = _name(engine.address.schema, "turned")
        self.on_turned: Callable[[], None] = lambda: None

    def ring(self, queue: QueueRef, topics: set[Topic]) -> None:
        """Ring here at once, and in other processes within milliseconds."""
        for topic in topics:
            self._belfry.ring(queue, topic)
        rings = {(self._channel(queue, topic), "") for topic in topics}
        if Topic.READY in topics:
            rings.add((tenant_channel(self._engine.address.schema, queue.tenant), queue.name))
        self._tell(rings)

    def ring_turned(self) -> None:
        """Tell everybody that the clock was turned."""
        self._belfry.ring_all()
        self._tell({(self.turned, "")})

    @asynccontextmanager
    async def hang(self, queue: QueueRef, topic: Topic) -> AsyncIterator[LocalBell]:
        """A bell for the time of the block."""
        async with (
            self._listening_to(self._channel(queue, topic), _Channel(queue, topic)),
            self._belfry.hang(queue, topic) as bell,
        ):
            yield bell

    @asynccontextmanager
    async def hang_for_all(self, tenant: str) -> AsyncIterator[LocalQueueBell]:
        """A bell for all queues of a tenant, for the time of the block."""
        name = tenant_channel(self._engine.address.schema, tenant)
        async with (
            self._listening_to(name, _Channel(tenant, Topic.READY)),
            self._belfry.hang_for_all(tenant) as bell,
        ):
            yield bell

    @asynccontextmanager
    async def _listening_to(self, name: str, new: _Channel) -> AsyncIterator[None]:
        channel = self._channels.setdefault(name, new)
        channel.bells += 1
        try:
            if self._listening is None:
                work = self._poll() if self._engine.address.is_pooled else self._listen()
                self._listening = asyncio.create_task(work)
            self._changed.set()
            # What happens from the confirmation on is heard, and the caller looks for itself after that.
            # Where it does not come in time the bell hangs nevertheless, and rings once when it comes.
            with suppress(TimeoutError):
                async with asyncio.timeout(_CONFIRM_SECONDS):
                    await channel.confirmed.wait()
            yield
        finally:
            channel.bells -= 1
            if not channel.bells:
                del self._channels[name]
                self._changed.set()

    async def close(self) -> None:
        """Send what is still to be told, and stop listening."""
        if self._sending is not None:
            await self._sending
        listening, self._listening = self._listening, None
        if listening is not None:
            listening.cancel()
            await asyncio.wait([listening])

    def _channel(self, queue: QueueRef, topic: Topic) -> str:
        return channel_of(self._engine.address.schema, queue, topic)

    def _tell(self, rings: set[tuple[str, str]]) -> None:
        self._wanted |= rings
        if self._sending is None or self._sending.done():
            self._sending = asyncio.create_task(self._send())

    async def _send(self) -> None:
        # The first ring goes at once; those that come while it is on its way go together, a little later.
        while self._wanted:
            rings, self._wanted = sorted(self._wanted), set()
            # Whoever misses a ring still polls.
            with suppress(PenstockError):
                await self._engine.run(
                    _NOTIFY, [channel for channel, _ in rings], [queue for _, queue in rings]
                )
            await asyncio.sleep(JOIN_SECONDS)

    async def _poll(self) -> None:
        while True:
            for channel in self._channels.values():
                channel.confirmed.set()
            self._belfry.ring_all()
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
                connection = await self._engine.connect("penstock-bells")
                await self._hear(connection)
            except (psycopg.Error, OSError):
                # One that lasted was lost by an accident; one that did not would be lost again at once.
                failures = 1 if time.monotonic() - begun > _LONGEST_PAUSE else failures + 1
            finally:
                if connection is not None:
                    await connection.close()
            for channel in self._channels.values():
                channel.confirmed.clear()
            # Rings may have been missed.
            self._belfry.ring_all()
            longest = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** min(failures, 20))
            await asyncio.sleep(random.uniform(0, longest))

    async def _hear(self, connection: Connection) -> None:
        """Ring for what comes; ends only by an error."""
        connection.add_notify_handler(lambda notify: self._heard(notify.channel, notify.payload))
        heard: set[str] = set()
        while True:
            self._changed.clear()
            wanted = {self.turned, *self._channels}
            # Also the word that the connection is alive, after a silence.
            commands = [f'LISTEN "{name}"' for name in wanted - heard]
            commands += [f'UNLISTEN "{name}"' for name in heard - wanted]
            # Not by a timeout of the call: the driver would go on to wait for a server that says nothing.
            watch = asyncio.get_running_loop().call_later(_SILENCE_SECONDS, cut, connection)
            try:
                await connection.execute("; ".join(commands or ["SELECT 1"]).encode())
            finally:
                watch.cancel()
            heard = wanted
            for name in heard & set(self._channels):
                channel = self._channels[name]
                if not channel.confirmed.is_set():
                    channel.confirmed.set()
                    self._ring(channel, None)
            await self._until_readable(connection)

    async def _until_readable(self, connection: Connection) -> None:
        loop = asyncio.get_running_loop()
        # Some may have come with the answer to the last command.
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
            self._heard(notify.relname.decode(), notify.extra.decode())

    def _heard(self, name: str, said: str) -> None:
        if name == self.turned:
            self.on_turned()
            self._belfry.ring_all()
        channel = self._channels.get(name)
        if channel is not None:
            self._ring(channel, said or None)

    def _ring(self, channel: _Channel, named: str | None) -> None:
        if isinstance(channel.queue, QueueRef):
            self._belfry.ring(channel.queue, channel.topic)
        else:
            self._belfry.ring_in(channel.queue, named)


def channel_of(schema: str, queue: QueueRef, topic: Topic) -> str:
    """The channel that the bells of a queue listen on."""
    return _name(schema, queue.tenant, queue.name, topic)


def tenant_channel(schema: str, tenant: str) -> str:
    """The channel on which all queues of a tenant tell that a job became claimable."""
    # No queue has an empty name.
    return _name(schema, tenant, "", Topic.READY)


def _name(*parts: str) -> str:
    """A channel's name: those have at most 63 letters, and queues may have more."""
    return "penstock_" + hashlib.blake2b("/".join(parts).encode(), digest_size=16).hexdigest()
