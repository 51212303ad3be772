"""Bells over publish and subscribe: one subscribed connection for all bells of a store."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

from penstock.core.errors import StoreError
from penstock.core.job import QueueRef
from penstock.stores.bells import Belfry, LocalBell, LocalQueueBell
from penstock.stores.redis.inbox import Inbox
from penstock.stores.redis.keys import keys_of, queue_of_bell, ready_bells, turned
from penstock.stores.redis.line import Line, ReplyError, pack
from penstock.stores.redis.server import Server
from penstock.stores.values import Topic

_CONFIRM_SECONDS: Final = 1.0
_SILENCE_SECONDS: Final = 5.0
_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 5.0
_EVERY: Final = b"penstock:*"
_TOLD: Final = frozenset({b"message", b"subscribe", b"pmessage", b"psubscribe"})


class _Channel:
    """A channel that bells hang on, how many, and whether the server has confirmed the subscription."""

    def __init__(self, queue: QueueRef, topic: Topic) -> None:
        self.queue = queue
        self.topic = topic
        self.bells = 0
        self.confirmed = asyncio.Event()


class _Pattern:
    """A pattern for the channels of all queues of a tenant, and the same of it as of a channel."""

    def __init__(self, tenant: str) -> None:
        self.tenant = tenant
        self.bells = 0
        self.confirmed = asyncio.Event()


class Subscriber:
    """Rings the bells of a store. Wake-ups are hints: whatever fails here only makes a worker poll."""

    def __init__(self, server: Server, inbox: Inbox) -> None:
        self._server = server
        self._inbox = inbox
        self._belfry = Belfry()
        self._channels: dict[bytes, _Channel] = {}
        self._patterns: dict[bytes, _Pattern] = {}
        self._is_refused = False
        """The server refused something since there are patterns: its user may have no right to those."""
        self._line: Line | None = None
        self._listening: asyncio.Task[None] | None = None
        self._turned = b""
        self._is_heard = False
        self._failures = 0

    @asynccontextmanager
    async def hang(self, queue: QueueRef, topic: Topic) -> AsyncIterator[LocalBell]:
        """A bell for the time of the block."""
        name = keys_of(queue).bell(topic, self._server.database).encode()
        channel = self._channels.setdefault(name, _Channel(queue, topic))
        channel.bells += 1
        try:
            if self._listening is None:
                self._listening = asyncio.create_task(self._listen())
            elif channel.bells == 1:
                self._tell("SUBSCRIBE", name)
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
                self._tell("UNSUBSCRIBE", name)

    @asynccontextmanager
    async def hang_for_all(self, tenant: str) -> AsyncIterator[LocalQueueBell]:
        """A bell for all queues of a tenant, for the time of the block."""
        name = ready_bells(tenant, self._server.database).encode()
        pattern = self._patterns.setdefault(name, _Pattern(tenant))
        pattern.bells += 1
        try:
            if self._listening is None:
                self._listening = asyncio.create_task(self._listen())
            elif pattern.bells == 1:
                self._tell("PSUBSCRIBE", _EVERY if self._is_refused else name)
            with suppress(TimeoutError):
                async with asyncio.timeout(_CONFIRM_SECONDS):
                    await pattern.confirmed.wait()
            async with self._belfry.hang_for_all(tenant) as bell:
                yield bell
        finally:
            pattern.bells -= 1
            if not pattern.bells:
                del self._patterns[name]
                self._tell("PUNSUBSCRIBE", name)

    def ring_all(self) -> None:
        """Ring every bell of this store."""
        self._belfry.ring_all()

    async def close(self) -> None:
        """Stop listening."""
        listening, self._listening = self._listening, None
        if listening is not None:
            listening.cancel()
            await asyncio.wait([listening])

    def _tell(self, *command: str | bytes) -> None:
        # Without a line there is nothing to say: whoever makes the next one subscribes to all that is wanted.
        if self._line is not None:
            self._line.tell(pack([command]))

    async def _listen(self) -> None:
        while True:
            self._failures = min(self._failures + 1, 10)
            with suppress(StoreError, ReplyError, OSError):
                line = self._line = await self._server.dial(self._heard)
                try:
                    await self._keep_hearing(line)
                finally:
                    self._line = None
                    line.close()
            for channel in self._channels.values():
                channel.confirmed.clear()
            for pattern in self._patterns.values():
                pattern.confirmed.clear()
            # Rings may have been missed.
            self._belfry.ring_all()
            await asyncio.sleep(random.uniform(0, min(_LONGEST_PAUSE, _FIRST_PAUSE * 2**self._failures)))

    async def _keep_hearing(self, line: Line) -> None:
        """Subscribe, and ask a line that is silent whether it lives; ends when it does not."""
        self._turned = turned(self._server.database).encode()
        self._tell("SUBSCRIBE", self._turned, self._inbox.channel, *self._channels)
        # A user without the right to a tenant's pattern may have that to all channels.
        if self._patterns:
            self._tell("PSUBSCRIBE", *([_EVERY] if self._is_refused else self._patterns))
        is_asked = False
        while True:
            self._is_heard = False
            await asyncio.wait([line.closed], timeout=_SILENCE_SECONDS)
            if line.closed.done() or (is_asked and not self._is_heard):
                return
            is_asked = not self._is_heard
            if is_asked:
                self._tell("PING")

    def _heard(self, message: Any) -> None:
        self._is_heard = True
        if isinstance(message, ReplyError) and self._line is not None:
            # This user may not listen. Someone may change that.
            self._is_refused = bool(self._patterns) and not self._is_refused
            self._line.close()
        if not isinstance(message, list) or message[0] not in _TOLD:
            return
        self._failures = 0
        if message[0] in (b"pmessage", b"psubscribe"):
            self._heard_pattern(message)
            return
        if message[:2] == [b"message", self._turned]:
            self._belfry.ring_all()
        if message[:2] == [b"message", self._inbox.channel.encode()]:
            queue = self._inbox.heard(message[2])
            if queue is not None:
                self._belfry.ring(queue, Topic.READY)
        channel = self._channels.get(message[1])
        if channel is None:
            return
        if message[0] == b"subscribe":
            channel.confirmed.set()
        self._belfry.ring(channel.queue, channel.topic)

    def _heard_pattern(self, message: list[Any]) -> None:
        if message[1] == _EVERY:
            for name in self._patterns:
                start, _, end = name.partition(b"*")
                channel = message[2] if message[0] == b"pmessage" else name
                if channel.startswith(start) and channel.endswith(end):
                    self._heard_pattern([message[0], name, channel])
            return
        pattern = self._patterns.get(message[1])
        if pattern is None:
            return
        if message[0] == b"psubscribe":
            pattern.confirmed.set()
            self._belfry.ring_in(pattern.tenant, None)
        else:
            self._belfry.ring_in(pattern.tenant, queue_of_bell(message[2].decode()))
