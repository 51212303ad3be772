"""Bells over publish and subscribe: one subscribed connection for all bells of a store."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

from redis.asyncio.connection import AbstractConnection
from redis.exceptions import RedisError

from penstock.core.job import QueueRef
from penstock.stores.bells import Belfry, LocalBell
from penstock.stores.protocol import Topic
from penstock.stores.redis.keys import TURNED, keys_of
from penstock.stores.redis.server import Server, heeding_cancels

_CONFIRM_SECONDS: Final = 1.0
_SILENCE_SECONDS: Final = 5.0
_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 5.0
_CANCELS: Final = 20
_CANCEL_SECONDS: Final = 0.1


class _Channel:
    """A channel that bells hang on, how many, and whether the server has confirmed the subscription."""

    def __init__(self, queue: QueueRef, topic: Topic) -> None:
        self.queue = queue
        self.topic = topic
        self.bells = 0
        self.confirmed = asyncio.Event()


class Subscriber:
    """Rings the bells of a store. Wake-ups are hints: whatever fails here only makes a worker poll."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._belfry = Belfry()
        self._channels: dict[bytes, _Channel] = {}
        self._connection: AbstractConnection | None = None
        self._listening: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def hang(self, queue: QueueRef, topic: Topic) -> AsyncIterator[LocalBell]:
        """A bell for the time of the block."""
        name = keys_of(queue).bell(topic).encode()
        channel = self._channels.setdefault(name, _Channel(queue, topic))
        channel.bells += 1
        try:
            if self._listening is None:
                self._listening = asyncio.create_task(self._listen(self._server.connection()))
            elif channel.bells == 1:
                await self._send("SUBSCRIBE", name)
            # What happens from the confirmation on is heard, and the caller looks for itself after that.
            # Where it does not come in time the bell hangs nevertheless, and rings once when it comes.
            with suppress(TimeoutError):
                async with asyncio.timeout(_CONFIRM_SECONDS):
                    await channel.confirmed.wait()
            async with self._belfry.hang(queue, topic) as bell:
                yield bell
        finally:
            channel.bells -= 1
            if not channel.bells:
                del self._channels[name]
                await self._send("UNSUBSCRIBE", name)

    def ring_all(self) -> None:
        """Ring every bell of this store."""
        self._belfry.ring_all()

    async def close(self) -> None:
        """Stop listening. Bounded: a cancel that gets lost is repeated, and not for ever."""
        listening, self._listening = self._listening, None
        for _ in range(_CANCELS):
            if listening is None or listening.done():
                break
            listening.cancel()
            await asyncio.wait([listening], timeout=_CANCEL_SECONDS)

    async def _send(self, *arguments: Any) -> None:
        connection = self._connection
        if connection is not None:
            # Whoever listens notices the loss, connects again and subscribes to all that is wanted then.
            with suppress(RedisError, OSError):
                await _send(connection, *arguments)

    async def _listen(self, connection: AbstractConnection) -> None:
        failures = 0
        while True:
            try:
                with heeding_cancels():
                    await connection.connect()  # type: ignore[no-untyped-call] # the client's
                async with asyncio.timeout(_SILENCE_SECONDS):
                    await _send(connection, "PING")
                    await connection.read_response()
                failures = 0
                await self._hear(connection)
            except (RedisError, OSError):
                failures += 1
            finally:
                self._connection = None
                await connection.disconnect(nowait=True)
            for channel in self._channels.values():
                channel.confirmed.clear()
            # Rings may have been missed.
            self._belfry.ring_all()
            await asyncio.sleep(random.uniform(0, min(_LONGEST_PAUSE, _FIRST_PAUSE * 2**failures)))

    async def _hear(self, connection: AbstractConnection) -> None:
        """Ring for what comes; ends only by an error."""
        self._connection = connection
        await _send(connection, "SUBSCRIBE", TURNED, *self._channels)
        is_asked = False
        while True:
            message = await connection.read_response(timeout=_SILENCE_SECONDS)
            if message is not None:
                is_asked = False
                self._ring(message)
            elif is_asked:
                raise ConnectionError("the subscribed connection fell silent")
            else:
                is_asked = True
                await _send(connection, "PING")

    def _ring(self, message: Any) -> None:
        if not isinstance(message, list) or message[0] not in (b"message", b"subscribe"):
            return
        if message[:2] == [b"message", TURNED.encode()]:
            self._belfry.ring_all()
        channel = self._channels.get(message[1])
        if channel is None:
            return
        if message[0] == b"subscribe":
            channel.confirmed.set()
        self._belfry.ring(channel.queue, channel.topic)


async def _send(connection: AbstractConnection, *arguments: Any) -> None:
    with heeding_cancels():
        await connection.send_command(*arguments)
