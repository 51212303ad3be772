"""Statements on the server: prepared or behind a pooler, within time limits, with Penstock's own errors."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import psycopg

from penstock.core.errors import ConfigError, PenstockError, StoreTimeoutError
from penstock.stores.postgres.address import Address
from penstock.stores.postgres.faults import Faults, Proof, is_outdated
from penstock.stores.postgres.pool import Connection as Connection
from penstock.stores.postgres.pool import Pool, connect, cut, settings
from penstock.stores.postgres.pool import Row as Row

OLDEST: Final = 140_000

Value = str | int | bool | Sequence[Any] | None
_Cursor = psycopg.AsyncRawCursor[Row]


class Engine:
    """One database, used from one event loop.

    No call is repeated here: after a lost answer only the caller knows whether a second one is harmless.
    """

    def __init__(self, address: Address) -> None:
        self.address = address
        self.faults = Faults(f"the server at {address.shown}", address.secrets)
        self.on_lost: Callable[[], None] = lambda: None
        """Called when tables are found to be gone."""
        self._pool = Pool(address)
        settings_sql = ", ".join(
            f"pg_catalog.set_config('{name}', '{value}', true)" for name, value in settings(address).items()
        )
        self._local = f"SELECT {settings_sql}".encode()

    async def open(self) -> None:
        """Reach the server, and refuse one that cannot hold a store."""
        self._pool = Pool(self.address)
        self._pool.open()
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

    def proven(self, *, may_write: bool) -> None:
        """This is the right server: a refusal from now on is a fault that passes."""
        self.faults.proven = frozenset(Proof) if may_write else frozenset({Proof.LOGIN})

    async def close(self) -> None:
        """Close every connection. Harmless when there is none."""
        self.faults.proven = frozenset()
        await self._pool.close()

    async def run(
        self, statement: str, *params: Value, on: Connection | None = None, prepare: bool = True
    ) -> list[Row]:
        """One statement, in a transaction of its own unless it is `on` a connection with one; its rows.

        A statement whose values decide how its rows are best found is not to be prepared.
        """
        prepare = prepare and not self.address.is_pooled
        if on is not None:
            return await self._rows(await self._execute(on, statement, params, prepare=prepare))
        # Behind a pooler not in a pipeline: after the last answer the driver sends one more message, which
        # the pooler takes for a new transaction, and keeps a connection for.
        around = self.transaction if self.address.is_pooled else self.connection
        async with around() as connection:
            return await self._rows(await self._execute(connection, statement, params, prepare=prepare))

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        """A connection with a transaction that the end of the block commits."""
        async with self.connection() as connection, connection.transaction():
            if self.address.is_pooled:
                await connection.execute(self._local)
            yield connection

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """A connection of the pool, for one call; the driver's errors become Penstock's."""
        pool, shown, limit = self._pool, self.address.shown, self.address.pool.answer_timeout
        connection: Connection | None = None
        watch: asyncio.TimerHandle | None = None
        is_late = False

        def end(late: Connection) -> None:
            nonlocal is_late
            is_late = True
            cut(late)

        try:
            connection = await pool.get()
            watch = asyncio.get_running_loop().call_later(limit, end, connection)
            yield connection
        except PenstockError:
            # Some of Penstock's errors are system errors too.
            raise
        except (psycopg.Error, OSError) as error:
            if is_late:
                raise StoreTimeoutError(f"the server at {shown} did not answer within {limit:g} s") from error
            if connection is not None and (
                isinstance(error, psycopg.errors.ReadOnlySqlTransaction) or is_outdated(error)
            ):
                # The name may lead to another primary by now; the rights of a session are set when it begins,
                # and its prepared statements are for the tables of then.
                await connection.close()
            if isinstance(error, psycopg.errors.UndefinedTable | psycopg.errors.InvalidSchemaName):
                self.on_lost()
            raise self.faults.translate(error) from error
        finally:
            if watch is not None:
                watch.cancel()
            if connection is not None:
                await pool.put_back(connection)

    async def connect(self, name: str = "penstock", **extras: str) -> Connection:
        """A connection outside the pool; `extras` are settings that win over the usual ones."""
        return await connect(self.address, name=name, **extras)

    async def _execute(
        self, connection: Connection, statement: str, params: Sequence[Value], *, prepare: bool
    ) -> _Cursor:
        cursor = psycopg.AsyncRawCursor(connection)
        await cursor.execute(statement.encode(), [bound(each) for each in params], prepare=prepare)
        return cursor

    async def _rows(self, cursor: _Cursor) -> list[Row]:
        return await cursor.fetchall() if cursor.description else []


def bound(value: Value) -> str | None:
    """A value as a statement takes it: text whose type the server knows, so that one plan serves all."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "t" if value else "f"
    return str(value) if isinstance(value, int) else array(value)


def array(values: Sequence[Any]) -> str:
    """A list as text; its items are text, numbers, truth values or None."""
    if len(values) > 1 and values.count(values[0]) == len(values):
        # All items are the same, as in most columns of many jobs.
        return "{" + ",".join([_item(values[0])] * len(values)) + "}"
    return "{" + ",".join([_item(value) for value in values]) + "}"


def _item(value: Any) -> str:
    if type(value) is str:
        if "\\" in value or '"' in value:
            value = value.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{value}"'
    return "NULL" if value is None else str(value)
