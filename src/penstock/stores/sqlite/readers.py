"""Who reads the events in the file, and how far."""

import sqlite3

from penstock.core.cursors import Cursor, read_cursor
from penstock.core.job import QueueRef
from penstock.core.names import check_name
from penstock.stores.absent import answers_absent
from penstock.stores.bounds import READER_LEASE_MS
from penstock.stores.sqlite.backend import Backend
from penstock.stores.sqlite.events import find_event, range_of
from penstock.stores.sqlite.queue_transaction import QueueTransaction
from penstock.stores.values import Reader


class SqliteReaders:
    """Registers readers under a lease."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def register_reader(self, queue: QueueRef, name: str, cursor: str | int) -> Reader:
        """Register or renew a reader."""
        check_name("reader", name)
        after = read_cursor("cursor", cursor)

        def move(transaction: QueueTransaction) -> Reader:
            _, first, last = range_of(transaction.connection, queue)
            there = find_event(transaction.connection, queue, after, transaction.number, first, last)
            position = after if there is None else Cursor(after.seq, there.mark)
            reader = Reader(name, str(position), position.seq, transaction.now + READER_LEASE_MS)
            transaction.connection.execute(
                "INSERT OR REPLACE INTO reader (queue, name, cursor, seq, kept_until) VALUES (?, ?, ?, ?, ?)",
                (transaction.number, reader.name, reader.cursor, reader.seq, reader.kept_until),
            )
            return reader

        return await self._backend.transact(queue, move)

    async def list_readers(self, queue: QueueRef) -> list[Reader]:
        """The registered readers by name."""

        def work(connection: sqlite3.Connection) -> list[Reader]:
            number, _, _ = range_of(connection, queue)
            rows = connection.execute(
                "SELECT name, cursor, seq, kept_until FROM reader WHERE queue = ? ORDER BY name", (number,)
            )
            return [Reader(*row) for row in rows]

        return await self._backend.read(work)

    @answers_absent
    async def unregister_reader(self, queue: QueueRef, name: str) -> bool:
        """Forget a reader; False when there was none."""

        def move(transaction: QueueTransaction) -> bool:
            sql = "DELETE FROM reader WHERE queue = ? AND name = ?"
            return transaction.connection.execute(sql, (transaction.number, name)).rowcount > 0

        return await self._backend.transact(queue, move, creates=False)

    @answers_absent
    async def remove_expired_readers(self, queue: QueueRef) -> int:
        """Forget the readers whose lease is over."""

        def move(transaction: QueueTransaction) -> int:
            sql = "DELETE FROM reader WHERE queue = ? AND kept_until <= ?"
            return transaction.connection.execute(sql, (transaction.number, transaction.now)).rowcount

        return await self._backend.transact(queue, move, creates=False)
