"""Connections to the server: a bounded pool, prepared statements, time limits, Penstock's own errors."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import psycopg
from psycopg.pq import TransactionStatus

from penstock.core.errors import ConfigError, StoreError, StoreTimeoutError, StoreUnavailableError
from penstock.stores.postgres.address import Address
from penstock.stores.postgres.faults import translated

POOL_SIZE: Final = 10
POOL_SECONDS: Final = 4.0
CONNECT_SECONDS: Final = 4
ANSWER_SECONDS: Final = 10.0
OLDEST: Final = 140_000
_SETTINGS: Final = {
    # The moves name rows by key; a plan made while a table was small must not outlive that.
    "enable_seqscan": "off",
    "enable_mergejoin": "off",
    "jit": "off",
    "statement_timeout": "8000",
    "lock_timeout": "4000",
    "idle_in_transaction_session_timeout": "30000",
    "timezone": "UTC",
}

Row = tuple[Any, ...]
Value = str | int | bool | Sequence[Any] | None
Connection = psycopg.AsyncConnection[Row]


class Engine:
    """One database, used from one event loop.

    No call is repeated here: after a lost answer only the caller knows whether a second one is harmless.
    """

    def __init__(self, address: Address) -> None:
        self.address = address
        self._idle: list[Connection] = []
        self._slots: asyncio.Semaphore | None = None

    async def open(self) -> None:
        """Reach the server, and refuse one that cannot hold a store."""
        self._slots = asyncio.Semaphore(POOL_SIZE)
        async with self.connection() as connection:
            version = connection.info.server_version
            if version < OLDEST:
                raise ConfigError(
                    f"the server at {self.address.shown} is PostgreSQL {version // 10_000}; wanted 14 or up"
                )
            encoding = connection.info.parameter_status("server_encoding")
            if encoding != "UTF8":
                raise ConfigError(
                    f"the database at {self.address.shown} has encoding {encoding}; wanted UTF8"
                )

    async def close(self) -> None:
        """Close every connection. Harmless when there is none."""
        idle, self._idle, self._slots = self._idle, [], None
        for connection in idle:
            await connection.close()

    async def run(self, statement: str, *params: Value, on: Connection | None = None) -> list[Row]:
        """One statement, in a transaction of its own unless it is `on` a connection with one; its rows."""
        if on is None:
            async with self.connection() as connection:
                return await self.run(statement, *params, on=connection)
        cursor = psycopg.AsyncRawCursor(on)
        await cursor.execute(
            statement.encode(), [bound(each) for each in params], prepare=not self.address.is_pooled
        )
        return await cursor.fetchall() if cursor.description else []

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        """A connection with a transaction that the end of the block commits."""
        async with self.connection() as connection, connection.transaction():
            yield connection

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """A connection of the pool, for one call; what it raises becomes one of Penstock's errors."""
        slots = self._slots
        if slots is None:
            raise StoreError(f"the store at {self.address.shown} is not open")
        try:
            async with asyncio.timeout(POOL_SECONDS):
                await slots.acquire()
        except TimeoutError:
            raise StoreTimeoutError(
                f"all {POOL_SIZE} connections to {self.address.shown} were busy for {POOL_SECONDS:g} s"
            ) from None
        connection: Connection | None = None
        try:
            connection = self._idle.pop() if self._idle else await self.connect()
            async with asyncio.timeout(ANSWER_SECONDS):
                yield connection
        except psycopg.Error as error:
            raise translated(error, self.address.shown, self.address.secrets) from error
        except TimeoutError as error:
            raise StoreTimeoutError(
                f"the server at {self.address.shown} did not answer within {ANSWER_SECONDS:g} s"
            ) from error
        except OSError as error:
            raise StoreUnavailableError(
                f"the server at {self.address.shown} cannot be reached: {error}"
            ) from error
        finally:
            slots.release()
            if connection is not None:
                await self._put_back(connection, slots)

    async def connect(self, **settings: str) -> Connection:
        """A connection outside the pool."""
        # A pooler hands the server's connections around: what one caller sets there, another one would have.
        said = {} if self.address.is_pooled else _SETTINGS | settings
        options = " ".join(f"-c {name}={value}" for name, value in said.items())
        return await psycopg.AsyncConnection.connect(
            self.address.conninfo,
            autocommit=True,
            options=options,
            # Only what asks for it is prepared; None would forbid that too.
            prepare_threshold=None if self.address.is_pooled else 1_000_000,
            application_name="penstock",
            connect_timeout=CONNECT_SECONDS,
        )

    async def _put_back(self, connection: Connection, slots: asyncio.Semaphore) -> None:
        usable = not connection.closed and connection.info.transaction_status is TransactionStatus.IDLE
        if usable and self._slots is slots:
            self._idle.append(connection)
            return
        # Where one connection was lost, those that lie idle most likely are lost too.
        lost = [connection, *self._idle] if connection.closed else [connection]
        self._idle = [each for each in self._idle if each not in lost]
        for each in lost:
            await each.close()


def bound(value: Value) -> str | None:
    """A value as a statement takes it: text whose type the server knows, so that one plan serves all."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "t" if value else "f"
    return str(value) if isinstance(value, int) else array(value)


def array(values: Sequence[Any]) -> str:
    """A list as text; its items are text, numbers, truth values or None."""
    return "{" + ",".join([_item(value) for value in values]) + "}"


def _item(value: Any) -> str:
    if type(value) is str:
        if "\\" in value or '"' in value:
            value = value.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{value}"'
    return "NULL" if value is None else str(value)
