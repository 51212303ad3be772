"""The connections to one address: bounded, some kept open, found alive before use."""

import asyncio
import random
from contextlib import suppress
from typing import Any, Final

from penstock.stores.gate import Gate
from penstock.stores.redis.line import Line, ReplyError, dial, pack
from penstock.stores.redis.url import Address, Target

_CHECK_SECONDS: Final = 1.0
_FIRST_PAUSE: Final = 0.25
_LONGEST_PAUSE: Final = 5.0
_WRONG_LINE: Final = ("READONLY", "NOAUTH")
_PING: Final = pack([("PING",)])


class Pool:
    """Gives each call the first connection that has room, so that calls that come together share a write.

    Calls wait for room for a bounded time. Connections are made one after the other: however many calls find
    the server away, it sees one attempt at a time. What is missing of the connections to keep is made in the
    background, with growing pauses of full jitter while that fails.
    """

    def __init__(self, target: Target, address: Address, *, patience: float = 0.0) -> None:
        numbers = target.numbers
        self._target = target
        self._address = address
        self._calls = numbers.calls_per_connection
        wanted = numbers.idle_connections
        self._idle = numbers.connections // 2 if wanted is None else min(wanted, numbers.connections)
        self._patience = patience
        self._lines: list[Line] = []
        self._last: dict[bytes, Line] = {}
        self._gate = Gate(
            numbers.connections * self._calls, numbers.pool_timeout, f"no connection to {address} had room"
        )
        self._dialling: asyncio.Task[None] | None = None
        self._checking: asyncio.Task[None] | None = None
        self._keeping: asyncio.Task[None] | None = None
        self._is_closed = False

    async def call(self, packed: bytes, replies: int, key: bytes | None = None) -> list[Any]:
        """The replies to packed commands, of which some may be errors. `key` is what they are about."""
        await self._gate.enter()
        try:
            line = self._used(key) or await self._ready()
            if key is not None:
                self._last[key] = line
        except BaseException:
            self._gate.leave()
            raise
        # From here on the line gives the room back, also if this call is cancelled.
        answers = await line.call(packed, replies)
        for each in answers:
            if isinstance(each, ReplyError) and str(each).startswith(_WRONG_LINE):
                # The name may lead to another primary by now, and a new connection logs in again.
                line.close(each)
        return answers

    async def close(self) -> None:
        """Close all connections; calls under way fail."""
        self._is_closed = True
        tasks = [task for task in (self._keeping, self._checking, self._dialling) if task is not None]
        for task in tasks:
            task.cancel()
        for line in list(self._lines):
            line.close()
        if tasks:
            await asyncio.wait(tasks)

    def _used(self, key: bytes | None) -> Line | None:
        """The line on which earlier calls about the key may be under way."""
        line = None if key is None else self._last.get(key)
        return line if line is not None and line.calls and not line.closed.done() else None

    async def _ready(self) -> Line:
        """A line to send on."""
        while True:
            line = self._roomy()
            if line is not None and line.quiet_for < self._target.numbers.idle_check:
                return line
            if line is not None and self._checking is None:
                self._checking = asyncio.create_task(self._check(line))
            if self._checking is not None:
                await asyncio.wait([self._checking])
            else:
                await self._dialled()

    def _roomy(self) -> Line | None:
        for line in self._lines:
            if line.calls < self._calls:
                return line
        # Calls that were given room at the same time as a line was lost share what is left.
        is_full = self._count >= self._target.numbers.connections
        return min(self._lines, key=lambda line: line.calls) if self._lines and is_full else None

    @property
    def _count(self) -> int:
        return len(self._lines) + (self._checking is not None)

    async def _check(self, line: Line) -> None:
        """Keep a line that was quiet if it still lives. Nobody uses it meanwhile."""
        self._lines.remove(line)
        line.freed = None
        try:
            with suppress(OSError):
                async with asyncio.timeout(_CHECK_SECONDS):
                    await line.call(_PING, 1)
                if not line.closed.done():
                    line.freed = self._gate.leave
                    self._lines.insert(0, line)
        finally:
            self._checking = None
            if line not in self._lines:
                line.close()
                self._keep()

    async def _dialled(self) -> None:
        """One more line. Callers that ask at the same time get the same one."""
        if self._is_closed:
            raise ConnectionError("the connection was closed")
        if self._dialling is None:
            self._dialling = asyncio.create_task(self._dial())
            self._dialling.add_done_callback(self._dial_ended)
        dialling = self._dialling
        await asyncio.wait([dialling])
        if dialling.cancelled():
            raise ConnectionError("the connection was closed")
        dialling.result()

    async def _dial(self) -> None:
        line = await dial(self._target, self._address, lost=self._forget, patience=self._patience)
        if self._is_closed or line.closed.done():
            line.close()
            raise ConnectionError("the connection was closed")
        line.freed = self._gate.leave
        self._lines.append(line)
        self._keep()

    def _dial_ended(self, task: asyncio.Task[None]) -> None:
        self._dialling = None
        if not task.cancelled():
            # Whoever waited has it; nobody may have.
            task.exception()

    def _forget(self, line: Line) -> None:
        self._last = {key: each for key, each in self._last.items() if each is not line}
        if line in self._lines:
            self._lines.remove(line)
            self._keep()

    def _keep(self) -> None:
        if self._keeping is None and not self._is_closed and self._count < self._idle:
            self._keeping = asyncio.create_task(self._keep_open())

    async def _keep_open(self) -> None:
        """Have so many connections as are to be kept."""
        failures = 0
        try:
            while self._count < self._idle:
                # The first pause too is random: clients that lost a server together do not return together.
                # A program that ends at once has made one connection.
                await asyncio.sleep(random.uniform(0, min(_LONGEST_PAUSE, _FIRST_PAUSE * 2**failures)))
                if self._count >= self._idle:
                    # Calls have made what was missing: one more could be one too many.
                    return
                try:
                    await self._dialled()
                    failures = 0
                except (OSError, ReplyError):
                    failures = min(failures + 1, 10)
        finally:
            self._keeping = None
