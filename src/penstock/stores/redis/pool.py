"""The connections to one address: bounded, some kept open, found alive before use."""

import asyncio
import random
from contextlib import suppress
from typing import Any, Final

from penstock.core.retry_pause import RetryPause
from penstock.stores.call_limit import CallLimit
from penstock.stores.redis.address import Address, Target
from penstock.stores.redis.connection import Connection, ReplyError, connect, pack

_CHECK_SECONDS: Final = 1.0
_PAUSE: Final = RetryPause(0.25, 5.0)
_WRONG_CONNECTION: Final = ("READONLY", "NOAUTH")
_PING: Final = pack([("PING",)])


class Pool:
    """Gives each call the first connection that has room, so that calls that come together share a write.

    Calls wait for room for a bounded time. Connections are made one after the other: however many calls find
    the server away, it sees one attempt at a time. What is missing of the connections to keep is made in the
    background, with growing pauses of full jitter while that fails.
    """

    def __init__(self, target: Target, address: Address, *, extra_timeout: float = 0.0) -> None:
        settings = target.settings
        self._target = target
        self._address = address
        self._calls = settings.calls_per_connection
        wanted = settings.idle_connections
        self._idle = settings.connections // 2 if wanted is None else min(wanted, settings.connections)
        self._extra_timeout = extra_timeout
        self._connections: list[Connection] = []
        self._last: dict[bytes, Connection] = {}
        self._call_limit = CallLimit(
            settings.connections * self._calls, settings.pool_timeout, f"no connection to {address} had room"
        )
        self._connecting: asyncio.Task[None] | None = None
        self._checking: asyncio.Task[None] | None = None
        self._keeping: asyncio.Task[None] | None = None
        self._is_closed = False

    async def call(self, packed: bytes, replies: int, key: bytes | None = None) -> list[Any]:
        """The replies to packed commands, of which some may be errors. `key` is what they are about."""
        await self._call_limit.acquire()
        try:
            connection = self._used(key) or await self._ready()
            if key is not None:
                self._last[key] = connection
        except BaseException:
            self._call_limit.release()
            raise
        # From here on the connection gives the room back, also if this call is cancelled.
        answers = await connection.call(packed, replies)
        for each in answers:
            if isinstance(each, ReplyError) and str(each).startswith(_WRONG_CONNECTION):
                # The name may lead to another primary by now, and a new connection logs in again.
                connection.close(each)
        return answers

    async def close(self) -> None:
        """Close all connections; calls under way fail."""
        self._is_closed = True
        tasks = [task for task in (self._keeping, self._checking, self._connecting) if task is not None]
        for task in tasks:
            task.cancel()
        for connection in list(self._connections):
            connection.close()
        if tasks:
            await asyncio.wait(tasks)

    def _used(self, key: bytes | None) -> Connection | None:
        """The connection on which earlier calls about the key may be under way."""
        connection = None if key is None else self._last.get(key)
        return (
            connection
            if connection is not None and connection.calls and not connection.closed.done()
            else None
        )

    async def _ready(self) -> Connection:
        """A connection to send on."""
        while True:
            connection = self._roomy()
            if connection is not None and connection.quiet_for < self._target.settings.idle_check:
                return connection
            if connection is not None and self._checking is None:
                self._checking = asyncio.create_task(self._check(connection))
            if self._checking is not None:
                await asyncio.wait([self._checking])
            else:
                await self._connected()

    def _roomy(self) -> Connection | None:
        for connection in self._connections:
            if connection.calls < self._calls:
                return connection
        # Calls that were given room at the same time as a connection was lost share what is left.
        is_full = self._count >= self._target.settings.connections
        return (
            min(self._connections, key=lambda connection: connection.calls)
            if self._connections and is_full
            else None
        )

    @property
    def _count(self) -> int:
        return len(self._connections) + (self._checking is not None)

    async def _check(self, connection: Connection) -> None:
        """Keep a connection that was quiet if it still lives. Nobody uses it meanwhile."""
        self._connections.remove(connection)
        connection.on_call_ended = None
        try:
            with suppress(OSError):
                async with asyncio.timeout(_CHECK_SECONDS):
                    await connection.call(_PING, 1)
                if not connection.closed.done():
                    connection.on_call_ended = self._call_limit.release
                    self._connections.insert(0, connection)
        finally:
            self._checking = None
            if connection not in self._connections:
                connection.close()
                self._keep()

    async def _connected(self) -> None:
        """One more connection. Callers that ask at the same time get the same one."""
        if self._is_closed:
            raise ConnectionError("the connection was closed")
        if self._connecting is None:
            self._connecting = asyncio.create_task(self._connect())
            self._connecting.add_done_callback(self._connecting_ended)
        connecting = self._connecting
        await asyncio.wait([connecting])
        if connecting.cancelled():
            raise ConnectionError("the connection was closed")
        connecting.result()

    async def _connect(self) -> None:
        connection = await connect(
            self._target, self._address, on_lost=self._forget, extra_timeout=self._extra_timeout
        )
        if self._is_closed or connection.closed.done():
            connection.close()
            raise ConnectionError("the connection was closed")
        connection.on_call_ended = self._call_limit.release
        self._connections.append(connection)
        self._keep()

    def _connecting_ended(self, task: asyncio.Task[None]) -> None:
        self._connecting = None
        if not task.cancelled():
            # Mark the exception as retrieved: every waiter has its own copy.
            task.exception()

    def _forget(self, connection: Connection) -> None:
        self._last = {key: each for key, each in self._last.items() if each is not connection}
        if connection in self._connections:
            self._connections.remove(connection)
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
                await asyncio.sleep(_PAUSE.after(failures, random.uniform))
                if self._count >= self._idle:
                    # Calls have made what was missing: one more could be one too many.
                    return
                try:
                    await self._connected()
                    failures = 0
                except (OSError, ReplyError):
                    failures = min(failures + 1, 10)
        finally:
            self._keeping = None
