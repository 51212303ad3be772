"""A bounded number of connections: calls wait for one, ended ones are dropped, and some are kept open."""

import asyncio
import os
import random
import select
import socket
from contextlib import suppress
from typing import Any, Final

import psycopg
from psycopg.pq import TransactionStatus

from penstock.core.errors import PoolTimeoutError, StoreError
from penstock.core.retry_pause import RetryPause
from penstock.stores.postgres.address import Address

Row = tuple[Any, ...]
Connection = psycopg.AsyncConnection[Row]

PAUSE: Final = RetryPause(0.05, 2.0)
CHECK_SECONDS: Final = 10.0
"""How often idle connections are looked at, and those that are missing are made."""
_KEEP_PAUSE: Final = 0.25
# The server gives up before the connection is closed, and waiting for a lock ends before that.
_STATEMENT_SHARE: Final = 0.8
_LOCK_SHARE: Final = 0.4
_IDLE_SECONDS: Final = 30

SEARCH_PATH: Final = "pg_catalog,pg_temp"
"""Where statements of the store find functions, operators and types: nowhere that others may create any.

pg_temp is named because PostgreSQL would otherwise search it first.
"""


class Pool:
    """The connections of one store, used from one event loop.

    Connections that are to be kept and are missing are made in the background, after the first call had one.
    Each takes the slot of a call while it is made, so that there are never more than are allowed.
    """

    def __init__(self, address: Address) -> None:
        self._address = address
        pool = address.pool
        wanted = pool.idle_connections
        self._kept = pool.connections // 2 if wanted is None else min(wanted, pool.connections)
        self._idle: list[Connection] = []
        self._busy = 0
        """Connections that are in use or being made."""
        self._keeping: asyncio.Task[None] | None = None
        self._next_check: asyncio.TimerHandle | None = None
        self._slots: asyncio.Semaphore | None = None
        self._failures = 0
        self._again = asyncio.Lock()

    def open(self) -> None:
        """Let calls take connections."""
        self._slots = asyncio.Semaphore(self._address.pool.connections)

    async def close(self) -> None:
        """Close every connection. Harmless when there is none."""
        idle, self._idle, self._slots = self._idle, [], None
        if self._next_check is not None:
            self._next_check.cancel()
            self._next_check = None
        keeping, self._keeping = self._keeping, None
        if keeping is not None and not keeping.done():
            keeping.cancel()
            await asyncio.wait([keeping])
        # The frames of a cancelled task hold the connection that it was making: it ends with them.
        del keeping
        for connection in idle:
            await connection.close()

    async def get(self) -> Connection:
        """A connection for one call, which puts it back; the driver's errors where none can be made."""
        slots = self._slots
        if slots is None:
            raise StoreError(f"the store at {self._address.shown} is not open")
        pool = self._address.pool
        if slots.locked():
            try:
                async with asyncio.timeout(pool.pool_timeout):
                    await slots.acquire()
            except TimeoutError:
                raise PoolTimeoutError(
                    f"all {pool.connections} connections to {self._address.shown} were busy for "
                    f"{pool.pool_timeout:g} s; nothing was sent"
                ) from None
        else:
            await slots.acquire()
        self._busy += 1
        try:
            while self._idle:
                connection = self._idle.pop()
                if is_quiet(connection):
                    return connection
                # The server has ended it, and most likely the others too; they are looked at one by one.
                await connection.close()
            connection = await self._connected()
        except BaseException:
            self._busy -= 1
            slots.release()
            raise
        if self._next_check is None and self._slots is slots:
            self._check()
        return connection

    async def put_back(self, connection: Connection) -> None:
        """Give the connection to the next call, unless it is of no use any more."""
        is_usable = not connection.closed and connection.info.transaction_status is TransactionStatus.IDLE
        if self._slots is None or not is_usable:
            await connection.close()
        else:
            self._idle.append(connection)
        self._busy -= 1
        if self._slots is not None:
            self._slots.release()

    def _check(self) -> None:
        """Have idle connections looked at, now and then until the pool is closed."""
        if not self._kept:
            return
        if self._keeping is None or self._keeping.done():
            self._keeping = asyncio.create_task(self._keep())
        # Clients that lost a server together do not return together.
        rest = CHECK_SECONDS * random.uniform(0.8, 1.2)
        self._next_check = asyncio.get_running_loop().call_later(rest, self._check)

    async def _keep(self) -> None:
        """Drop connections that the server has ended, and make those that are missing."""
        ended = [connection for connection in self._idle if not is_quiet(connection)]
        self._idle = [connection for connection in self._idle if connection not in ended]
        for connection in ended:
            await connection.close()
        while len(self._idle) + self._busy < self._kept:
            # Wait a little: a program that ends soon then has made one connection only.
            await asyncio.sleep(random.uniform(0, _KEEP_PAUSE))
            if len(self._idle) + self._busy >= self._kept or not await self._add():
                return

    async def _add(self) -> bool:
        """Make one more idle connection; False where that cannot be done now."""
        slots = self._slots
        if slots is None or slots.locked():
            return False
        await slots.acquire()
        self._busy += 1
        try:
            connection = await connect(self._address)
        except (psycopg.Error, OSError):
            # Calls report the error. The next check is the next attempt.
            return False
        finally:
            self._busy -= 1
            slots.release()
        if self._slots is not slots:
            await connection.close()
            return False
        # Calls take connections from the other end: those that were used last.
        self._idle.insert(0, connection)
        return True

    async def _connected(self) -> Connection:
        """A new connection. While the server is away they are tried one at a time, after growing pauses."""
        if not self._failures:
            return await self._tried()
        async with self._again:
            if self._failures:
                await asyncio.sleep(PAUSE.after(self._failures, random.uniform))
            return await self._tried()

    async def _tried(self) -> Connection:
        try:
            connection = await connect(self._address)
        except (psycopg.Error, OSError):
            self._failures += 1
            raise
        self._failures = 0
        return connection


async def connect(address: Address, *, name: str = "penstock", **extras: str) -> Connection:
    """A connection outside any pool."""
    # A pooler hands the server's connections around: a setting of one caller would hold for another one.
    options = {} if address.is_pooled else settings(address) | _ISOLATION | extras
    return await psycopg.AsyncConnection.connect(
        address.conninfo,
        autocommit=True,
        options=" ".join(f"-c {setting}={value}" for setting, value in options.items()),
        # Only statements that ask for it are prepared; None would forbid that too.
        prepare_threshold=None if address.is_pooled else 1_000_000,
        application_name=name,
        connect_timeout=max(1, round(address.pool.connect_timeout)),
    )


# At a level that a role or database has set, moves would fail that only have to wait for each other.
_ISOLATION: Final = {"default_transaction_isolation": r"read\ committed"}


def settings(address: Address) -> dict[str, str]:
    """The settings of the server that every statement of the store is run with."""
    answer_ms = address.pool.answer_timeout * 1000
    found = {
        # The moves name rows by key; a plan made while a table was small must not outlive that.
        "enable_seqscan": "off",
        "enable_mergejoin": "off",
        # The moves name rows one by one, whatever the values: a plan for each call takes longer than they do.
        "plan_cache_mode": "force_generic_plan",
        "jit": "off",
        "statement_timeout": str(max(1, round(answer_ms * _STATEMENT_SHARE))),
        "lock_timeout": str(max(1, round(answer_ms * _LOCK_SHARE))),
        "idle_in_transaction_session_timeout": str(_IDLE_SECONDS * 1000),
        "timezone": "UTC",
        "search_path": SEARCH_PATH,
    }
    return found if address.role is None else {**found, "role": address.role}


def is_quiet(connection: Connection) -> bool:
    """False when the server has sent something unasked: that it ends the connection."""
    if connection.closed:
        return False
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return not poll.poll(0)


def cut(connection: Connection) -> None:
    """End the connection now; calls that wait for it get the driver's error at once."""
    # Closing it here would let another one have its descriptor's number while that is still waited for.
    with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(connection.fileno())) as clone:
        clone.shutdown(socket.SHUT_RDWR)
