"""Jobs in a transaction of the caller's: the store's own statements, run on the caller's connection."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from copy import copy
from typing import Any, Final, cast

import msgspec
import psycopg
from psycopg.pq import PipelineStatus, TransactionStatus
from psycopg.rows import tuple_row
from psycopg.types.string import StrDumperUnknown

from penstock.core.errors import PenstockError, TransactionError
from penstock.core.job import NewJob, QueueRef
from penstock.core.limits import Mode
from penstock.core.outcomes import Enqueued, Refused
from penstock.stores.drivers import driver_of
from penstock.stores.postgres.address import Address
from penstock.stores.postgres.backend import Backend
from penstock.stores.postgres.engine import Engine, Row, Value, bound
from penstock.stores.postgres.enqueue import PostgresEnqueue
from penstock.stores.postgres.faults import Faults
from penstock.stores.postgres.notifier import PostgresNotifier, channel_of, tenant_channel
from penstock.stores.postgres.pool import SEARCH_PATH, settings
from penstock.stores.postgres.sources import in_schema
from penstock.stores.values import Topic

Driver = psycopg.Connection[Any] | psycopg.AsyncConnection[Any]

_STORE: Final = "SELECT value FROM penstock.meta WHERE name OPERATOR(pg_catalog.=) 'store'"
# PostgreSQL keeps the notification until the commit, one for all of the same transaction. Names are resolved
# by the search_path of the caller here, and by that of the store in all statements after this one.
_ENTER: Final = f"""
WITH before AS MATERIALIZED (
    SELECT
        pg_catalog.current_setting('lock_timeout') AS lock_timeout,
        pg_catalog.current_setting('search_path') AS search_path
),
entered AS MATERIALIZED (
    SELECT before.*, pg_catalog.pg_notify($2, ''), pg_catalog.pg_notify($3, $4),
        pg_catalog.set_config('search_path', '{SEARCH_PATH}', true)
    FROM before
)
SELECT ({_STORE}), pg_catalog.current_setting('transaction_isolation'),
    (SELECT is_plain FROM penstock.queue WHERE n OPERATOR(pg_catalog.=) $1::pg_catalog.int4),
    entered.lock_timeout, entered.search_path
FROM entered
"""  # noqa: S608 (constants)
_HOLD_BACK_DELETION: Final = "SELECT 1 FROM penstock.queue WHERE n = $1::integer FOR KEY SHARE"
_SET: Final = """
SELECT pg_catalog.set_config('lock_timeout', $1, true), pg_catalog.set_config('search_path', $2, true)
"""

# Meanings of errors on a connection and in a transaction that are the caller's.
_MEANINGS: Final = {
    "3F": "the connection is to a database without the store's tables",
    "42P01": "the connection is to a database without the store's tables",
    "25006": "the transaction is read-only",
    "42501": "the user of the connection may not write there: the owner of the tables can grant it",
}


class CallerTransactions:
    """Takes jobs in on connections of callers."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def enqueue(
        self,
        connection: object,
        queue: QueueRef,
        jobs: Sequence[NewJob],
        *,
        blocking: bool,
        mode: Mode | None = None,
    ) -> list[Enqueued | Refused]:
        """Take jobs in with the caller's transaction; its commit also notifies the workers."""
        address = self._backend.address
        driver = checked(await driver_of(connection), blocking=blocking)
        engine = CallerEngine(address, driver)
        number = self._backend.numbers.get(queue)
        if number is None:
            raise TransactionError(f"the queue {queue} was not opened before the transaction")
        channel = channel_of(address.schema, queue, Topic.READY)
        for_tenant = tenant_channel(address.schema, queue.tenant)
        enter = in_schema(_ENTER, address.schema)
        [row] = await engine.run(enter, number, channel, for_tenant, queue.name)
        caller = _Caller(*row)
        try:
            holds = self._holds(queue, caller, is_unique=any(new.unique for new in jobs))
            if caller.isolation != "read committed":
                # The transaction may see a queue that is gone. While its row is locked, it cannot be deleted.
                await engine.run(in_schema(_HOLD_BACK_DELETION, address.schema), number)
            if caller.lock_timeout == "0" and (holds or any(new.idempotency_key for new in jobs)):
                # Other transactions that stay open may hold the queue's row, or the same key.
                await engine.run(_SET, settings(address)["lock_timeout"], SEARCH_PATH)
            backend = _backend_on(engine, self._backend, {queue: number})
            return await PostgresEnqueue(backend).enqueue(queue, jobs, mode=mode)
        finally:
            if engine.goes_on:
                await engine.run(_SET, caller.lock_timeout, caller.search_path)

    def _holds(self, queue: QueueRef, caller: "_Caller", *, is_unique: bool) -> bool:
        """Whether the queue's row will be held; TransactionError where the jobs would reach no worker."""
        if caller.store != self._backend.store_id:
            raise TransactionError(
                f"the connection is to another database than the store at {self._backend.address.shown}"
            )
        if caller.is_plain is None and caller.isolation == "read committed":
            # The next call opens the queue anew, before its transaction.
            self._backend.forget_queue(queue)
            raise TransactionError(f"the queue {queue} was deleted since it was opened here: enqueue again")
        if caller.is_plain is None:
            raise TransactionError(
                f"the transaction is {caller.isolation} and began before the queue was opened"
            )
        holds = is_unique or not caller.is_plain
        if caller.isolation != "read committed" and holds:
            raise TransactionError(
                f"the transaction is {caller.isolation}: for queues with limits, and jobs one of a kind, it "
                "has to see what others did since it began; wanted read committed"
            )
        return holds


def _backend_on(engine: "CallerEngine", backend: Backend, numbers: dict[QueueRef, int]) -> Backend:
    """The backend with a caller's connection instead of its own.

    It notifies nobody, and keeps what it comes to know to itself: that is true only if the caller commits.
    """
    found = copy(backend)
    found.engine = cast(Engine, engine)
    found.notifier = cast(PostgresNotifier, _Silent())
    found.hints, found.enqueue_locks, found.numbers = {}, {}, numbers
    return found


class _Caller(msgspec.Struct, frozen=True):
    """The store, the queue and the transaction as the caller sees them, and the caller's settings."""

    store: int | None
    isolation: str
    is_plain: bool | None
    lock_timeout: str
    search_path: str


class CallerEngine:
    """Runs statements on a connection whose transaction is the caller's; never begins, commits or closes."""

    def __init__(self, address: Address, driver: Driver) -> None:
        self._driver = driver
        self._faults = Faults("the server of your connection", address.secrets)

    @property
    def goes_on(self) -> bool:
        """True while the transaction has not failed."""
        return self._driver.info.transaction_status is TransactionStatus.INTRANS

    async def run(self, statement: str, *params: Value, on: object = None) -> list[Row]:
        """One statement; its rows.

        Not prepared: the planner's settings are the caller's, and a plan must not outlive a small table.
        """
        values = [bound(each) for each in params]
        try:
            if isinstance(self._driver, psycopg.Connection):
                blocking = psycopg.RawCursor(self._driver, row_factory=tuple_row)
                with blocking:
                    blocking.adapters.register_dumper(str, StrDumperUnknown)
                    blocking.execute(statement.encode(), values, prepare=False)
                    return blocking.fetchall() if blocking.description else []
            cursor = psycopg.AsyncRawCursor(self._driver, row_factory=tuple_row)
            async with cursor:
                cursor.adapters.register_dumper(str, StrDumperUnknown)
                await cursor.execute(statement.encode(), values, prepare=False)
                return await cursor.fetchall() if cursor.description else []
        except psycopg.Error as error:
            code = error.sqlstate or ""
            why = _MEANINGS.get(code) or _MEANINGS.get(code[:2])
            if why is not None:
                raise TransactionError(f"{why} ({' '.join(str(error).split())})") from error
            raise self._faults.translate(error) from error

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator["CallerEngine"]:
        """A part of the caller's transaction that an error takes back."""
        await self.run("SAVEPOINT penstock")
        try:
            yield self
        except BaseException:
            # Where the connection is lost, that is the error to raise.
            with suppress(PenstockError):
                await self.run("ROLLBACK TO SAVEPOINT penstock")
                await self.run("RELEASE SAVEPOINT penstock")
            raise
        await self.run("RELEASE SAVEPOINT penstock")


class _Silent:
    """Notifies nobody: changes of a caller's transaction are there for others only after its commit."""

    def notify(self, queue: QueueRef, topics: set[Topic]) -> None:
        pass


def checked(driver: object, *, blocking: bool) -> Driver:
    """The driver's connection, if the next statement on it is part of a transaction."""
    if not isinstance(driver, psycopg.Connection | psycopg.AsyncConnection):
        found = f"{type(driver).__module__}.{type(driver).__qualname__}"
        raise TransactionError(
            f"found a connection of {found}, wanted one of psycopg 3, or a session or connection of "
            "SQLAlchemy or Django over it"
        )
    if isinstance(driver, psycopg.Connection) is not blocking:
        hint = (
            "await task.enqueue_in(…) for connections that are awaited"
            if blocking
            else "with app.blocking as queue: queue.enqueue_in(…) for connections that block"
        )
        raise TransactionError(f"found {type(driver).__name__}: {hint}")
    if driver.closed:
        raise TransactionError("the connection is closed")
    if driver.info.pipeline_status is not PipelineStatus.OFF:
        raise TransactionError(
            "the connection is in pipeline mode, where answers are not waited for: enqueue outside of "
            "`with connection.pipeline():`"
        )
    encoding = driver.info.parameter_status("client_encoding")
    if encoding != "UTF8":
        raise TransactionError(f"the client_encoding of the connection is {encoding}; wanted UTF8")
    match driver.info.transaction_status:
        case TransactionStatus.INTRANS:
            return driver
        case TransactionStatus.IDLE if not driver.autocommit:
            # The first statement begins the transaction.
            return driver
        case TransactionStatus.IDLE:
            raise TransactionError(
                "the connection is in autocommit mode and in no transaction: enqueue inside "
                "`with connection.transaction():`"
            )
        case TransactionStatus.INERROR:
            raise TransactionError("the transaction has failed already: it can only be rolled back")
        case _:
            raise TransactionError("the connection is in the middle of another statement")
