"""An outbox in a SQLite database of the caller's; meant for one relay."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from penstock.core.errors import StoreFormatError, TransactionError
from penstock.core.job import QueueRef
from penstock.stores.outbox import OutboxEntry, OutboxState, RejectedEntry
from penstock.stores.private_files import create_private_file
from penstock.stores.sqlite.faults import translated

T = TypeVar("T")
_BUSY_TIMEOUT: Final = 10.0
_NO_OUTBOX: Final = (
    "there is no outbox in this SQLite database: a relay makes it (`penstock outbox run`), or a user who "
    "runs the output of `penstock outbox sql`"
)
POLL_SECONDS: Final = 0.25

TABLES: Final = """
CREATE TABLE IF NOT EXISTS penstock_outbox (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant TEXT NOT NULL,
    queue TEXT NOT NULL,
    body TEXT NOT NULL,
    written_at INTEGER NOT NULL
);

CREATE TABLE IF NOT EXISTS penstock_outbox_failed (
    number INTEGER PRIMARY KEY,
    tenant TEXT NOT NULL,
    queue TEXT NOT NULL,
    body TEXT NOT NULL,
    written_at INTEGER NOT NULL,
    reason TEXT NOT NULL
);
"""
_NOW: Final = "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)"
_WRITE: Final = f"INSERT INTO penstock_outbox (tenant, queue, body, written_at) VALUES (?, ?, ?, {_NOW})"  # noqa: S608 (constants)
_NEXT: Final = f"""
SELECT number, tenant, queue, body, max(0, {_NOW} - written_at)
FROM penstock_outbox
WHERE tenant || '/' || queue NOT IN (SELECT value FROM json_each(?))
ORDER BY number
LIMIT ?
"""  # noqa: S608 (constants)
_SET_ASIDE: Final = """
INSERT OR IGNORE INTO penstock_outbox_failed (number, tenant, queue, body, written_at, reason)
SELECT number, tenant, queue, body, written_at, ? FROM penstock_outbox WHERE number = ?
"""
_BACK: Final = """
INSERT INTO penstock_outbox (number, tenant, queue, body, written_at)
SELECT number, tenant, queue, body, written_at FROM penstock_outbox_failed WHERE ? IS NULL OR number = ?
"""
_STATE: Final = f"""
SELECT
    (SELECT count(*) FROM penstock_outbox),
    (SELECT max(0, {_NOW} - written_at) FROM penstock_outbox ORDER BY number LIMIT 1),
    (SELECT count(*) FROM penstock_outbox_failed)
"""  # noqa: S608 (constants)
_FAILED: Final = "SELECT number, tenant, queue, reason FROM penstock_outbox_failed ORDER BY number LIMIT ?"


def write(connection: sqlite3.Connection, queue: QueueRef, body: str) -> None:
    """Put an entry into the outbox as part of the transaction that the connection is in."""
    try:
        if not connection.in_transaction and not _begins(connection):
            raise TransactionError("the SQLite connection is in autocommit mode, and in no transaction")
        connection.execute(_WRITE, (queue.tenant, queue.name, body))
    except sqlite3.ProgrammingError as error:
        raise TransactionError(f"the SQLite connection cannot be used: {error}") from error
    except sqlite3.OperationalError as error:
        if "no such table" not in str(error):
            raise translated(error, "your connection") from error
        raise StoreFormatError(_NO_OUTBOX) from error


def _is_there(path: str) -> bool:
    if not Path(path).exists():
        return False
    with closing(sqlite3.connect(path)) as base:
        found = base.execute("SELECT 1 FROM sqlite_master WHERE name = 'penstock_outbox_failed'")
        return found.fetchone() is not None


def _begins(connection: sqlite3.Connection) -> bool:
    """True where the first change begins a transaction by itself."""
    legacy = -1
    mode = getattr(connection, "autocommit", legacy)
    return mode is False or (mode == legacy and connection.isolation_level is not None)


class SqliteOutbox:
    """The outbox in a file, as a relay sees it. Nothing is locked while entries are on their way."""

    def __init__(self, path: str) -> None:
        self._path = path

    async def open(self, *, make: bool = True) -> None:
        """Tables that are not there are made, or StoreFormatError says so."""
        if make:
            await asyncio.to_thread(create_private_file, Path(self._path))
            await self._do(lambda base: base.executescript(TABLES))
        elif not await asyncio.to_thread(_is_there, self._path):
            raise StoreFormatError(f"{self._path}: {_NO_OUTBOX}")

    async def close(self) -> None:
        """Nothing is kept open."""

    @asynccontextmanager
    async def next_batch(
        self, limit: int, without: Sequence[QueueRef]
    ) -> AsyncIterator["SqliteBatch | None"]:
        """The next entries."""
        names = msgspec.json.encode([f"{queue.tenant}/{queue.name}" for queue in without]).decode()
        rows = await self._do(lambda base: base.execute(_NEXT, (names, limit)).fetchall())
        entries = [
            OutboxEntry(number, QueueRef(tenant, queue), *rest) for number, tenant, queue, *rest in rows
        ]
        yield SqliteBatch(self, entries)

    @asynccontextmanager
    async def subscribe(self) -> AsyncIterator["TimedSubscription"]:
        """SQLite notifies nobody: the subscription notifies by the clock."""
        yield TimedSubscription()

    async def state(self, limit: int) -> OutboxState:
        """How many entries wait, and which were set aside."""
        waiting, oldest, failed = await self._do(lambda base: base.execute(_STATE).fetchone())
        rows = await self._do(lambda base: base.execute(_FAILED, (limit,)).fetchall())
        return OutboxState(
            waiting, oldest, failed, [RejectedEntry(n, QueueRef(t, q), why) for n, t, q, why in rows]
        )

    async def retry(self, numbers: Sequence[int] | None) -> int:
        """Let entries that were set aside wait again."""
        wanted: list[int | None] = [None] if numbers is None else list(numbers)

        def work(base: sqlite3.Connection) -> int:
            back = sum(base.execute(_BACK, (each, each)).rowcount for each in wanted)
            for each in wanted:
                base.execute("DELETE FROM penstock_outbox_failed WHERE ? IS NULL OR number = ?", (each, each))
            return back

        return await self._do(work)

    async def settle(self, carried: Sequence[int], failed: Sequence[RejectedEntry]) -> None:
        """Delete entries that were carried over, and set aside those that never can be."""

        def work(base: sqlite3.Connection) -> None:
            base.executemany(_SET_ASIDE, [(each.reason, each.number) for each in failed])
            gone = [*carried, *(each.number for each in failed)]
            base.executemany("DELETE FROM penstock_outbox WHERE number = ?", [(each,) for each in gone])

        await self._do(work)

    async def _do(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Some work in a transaction of its own, away from the event loop."""

        def done() -> T:
            try:
                with closing(sqlite3.connect(self._path, timeout=_BUSY_TIMEOUT)) as base, base:
                    return work(base)
            except sqlite3.Error as error:
                raise translated(error, self._path) from error

        return await asyncio.to_thread(done)


class TimedSubscription:
    """A subscription that notifies after some time, but not long."""

    async def wait(self, timeout: float) -> bool:
        """True after `POLL_SECONDS`, or earlier False."""
        await asyncio.sleep(min(timeout, POLL_SECONDS))
        return timeout >= POLL_SECONDS


class SqliteBatch:
    """Some entries, oldest first."""

    def __init__(self, outbox: SqliteOutbox, entries: list[OutboxEntry]) -> None:
        self.entries = entries
        self._outbox = outbox

    async def finish(self, carried: Sequence[int], failed: Sequence[RejectedEntry]) -> None:
        """Delete entries that were carried over, and set aside those that never can be."""
        await self._outbox.settle(carried, failed)
