"""Bells over a stream: one answer without an end for all bells of a tenant."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import msgspec

from penstock.core.errors import PenstockError
from penstock.core.job import QueueRef
from penstock.stores.bells import Belfry, LocalBell, LocalQueueBell
from penstock.stores.remote.line import Line
from penstock.stores.values import Topic
from penstock.stores.wire import ANY_QUEUE, MOST_BELLS, Bells, Ring

CONFIRM_SECONDS: Final = 1.0
SILENCE_SECONDS: Final = 40.0
"""A service shows more often than this that its stream lives."""
LINGER_SECONDS: Final = 10.0
"""How long a stream is kept that nobody listens to: the next one who waits for a result uses it."""
FIRST_PAUSE: Final = 0.05
LONGEST_PAUSE: Final = 5.0

Listen = Callable[[bytes, Callable[[bytes], None]], Awaitable[Line]]
"""Opens a stream for a packed `Bells`; the function is called with each piece that comes."""


class Subscriber:
    """Rings the bells of a store. Wake-ups are hints: whatever fails here only makes a worker poll."""

    def __init__(self, listen: Listen) -> None:
        self._listen = listen
        self._belfry = Belfry()
        self._ears: dict[str, _Ear] = {}

    @asynccontextmanager
    async def hang(self, queue: QueueRef, topic: Topic) -> AsyncIterator[LocalBell]:
        """A bell for the time of the block."""
        async with (
            self._listening_to(queue.tenant, Ring(queue.name, topic)),
            self._belfry.hang(queue, topic) as bell,
        ):
            yield bell

    @asynccontextmanager
    async def hang_for_all(self, tenant: str) -> AsyncIterator[LocalQueueBell]:
        """A bell for all queues of a tenant, for the time of the block."""
        async with (
            self._listening_to(tenant, Ring(ANY_QUEUE, Topic.READY)),
            self._belfry.hang_for_all(tenant) as bell,
        ):
            yield bell

    @asynccontextmanager
    async def _listening_to(self, tenant: str, ring: Ring) -> AsyncIterator[None]:
        ear = self._ears.get(tenant)
        if ear is None:
            ear = self._ears[tenant] = _Ear(tenant, self._listen, self._belfry)
        ear.want(ring)
        try:
            # What happens once the stream stands is heard, and the caller looks for itself after that.
            await ear.tried()
            yield
        finally:
            ear.leave(ring)

    async def close(self) -> None:
        """Stop listening."""
        for ear in self._ears.values():
            await ear.close()
        self._ears.clear()


class _Ear:
    """Listens for one tenant. A bell that the stream does not have is heard after it was opened anew."""

    def __init__(self, tenant: str, listen: Listen, belfry: Belfry) -> None:
        self._loop = asyncio.get_running_loop()
        self._tenant = tenant
        self._listen = listen
        self._belfry = belfry
        self._left_at = 0.0
        self._wanted: dict[Ring, int] = {}
        self._asked: frozenset[Ring] = frozenset()
        self._changed = asyncio.Event()
        self._tried = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._rest = b""
        self._stands = False
        self._is_silent = True
        self._failures = 0

    def want(self, ring: Ring) -> None:
        """One more listens to this bell."""
        self._wanted[ring] = self._wanted.get(ring, 0) + 1
        if ring not in self._asked:
            self._tried.clear()
            self._changed.set()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())

    def leave(self, ring: Ring) -> None:
        """One listens no more."""
        self._wanted[ring] -= 1
        if not self._wanted[ring]:
            del self._wanted[ring]
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
            line: Line | None = None
            try:
                line = await self._opened()
                await self._keep_hearing(line)
            except (PenstockError, OSError):
                self._failures = min(self._failures + 1, 10)
            finally:
                if line is not None:
                    line.close()
            is_lost = self._asked.issuperset(self._wanted)
            self._asked = frozenset()
            if self._failures:
                # Whoever waits for the stream goes on without: it polls until the next one stands.
                self._tried.set()
            if is_lost or self._failures:
                # Clients that lost a service together do not return together.
                longest = min(LONGEST_PAUSE, FIRST_PAUSE * 2**self._failures)
                await asyncio.sleep(random.uniform(0, longest))

    async def _opened(self) -> Line:
        self._changed.clear()
        self._tried.clear()
        self._rest, self._stands, self._is_silent = b"", False, True
        wanted = frozenset(list(self._wanted)[-MOST_BELLS:])
        self._asked = wanted
        body = msgspec.msgpack.encode(Bells(self._tenant, list(wanted)))
        return await self._listen(body, self._came)

    async def _keep_hearing(self, line: Line) -> None:
        """Until the line is silent or lost, other bells are wanted, or none for a while."""
        silent_at = self._loop.time() + SILENCE_SECONDS
        while self._asked.issuperset(list(self._wanted)[-MOST_BELLS:]):
            now = self._loop.time()
            if not self._is_silent:
                self._is_silent, silent_at = True, now + SILENCE_SECONDS
            ends_at = silent_at if self._wanted else min(silent_at, self._left_at + LINGER_SECONDS)
            if ends_at <= now:
                return
            changed = asyncio.ensure_future(self._changed.wait())
            either: list[asyncio.Future[Any]] = [changed, line.closed]
            try:
                await asyncio.wait(either, timeout=ends_at - now, return_when=asyncio.FIRST_COMPLETED)
            finally:
                changed.cancel()
            self._changed.clear()
            if line.closed.done():
                raise ConnectionError("the stream broke off")

    def _came(self, piece: bytes) -> None:
        """Some lines of the stream: a bell that rang, or null once all are heard and now and then after."""
        self._is_silent = False
        *lines, self._rest = (self._rest + piece).split(b"\n")
        for line in lines:
            told = msgspec.json.decode(line, type=Ring | None)
            if told is not None:
                self._ring(told)
            elif not self._stands:
                self._stands, self._failures = True, 0
                # Rings may have been missed before.
                for ring in self._asked:
                    self._ring(ring)
                self._tried.set()

    def _ring(self, ring: Ring) -> None:
        if ring.queue == ANY_QUEUE:
            self._belfry.ring_in(self._tenant, None)
        else:
            self._belfry.ring(QueueRef(self._tenant, ring.queue), ring.topic)
