"""What all parts of the SQLite store hold: the engine of its file, its SQL, and who is notified."""

import asyncio
import sqlite3
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import TypeVar

from penstock.core.errors import DamagedQueueError, PenstockError, StoreFormatError
from penstock.core.job import QueueRef
from penstock.core.transitions import Table
from penstock.stores.absent import QueueAbsentError
from penstock.stores.corruption import ROW_ERRORS
from penstock.stores.notifier import LocalNotifier
from penstock.stores.sqlite.engine import Engine
from penstock.stores.sqlite.queue_transaction import QueueTransaction
from penstock.stores.sqlite.sources import cut, load_sources
from penstock.stores.sqlite.watch import Watch
from penstock.stores.values import Durability, Topic

T = TypeVar("T")


class Backend:
    """Hands calls to the threads of one file, and notifies once they are committed."""

    def __init__(
        self,
        path: Path,
        durability: Durability,
        busy_timeout: float,
        *,
        sources: dict[str, str] | None,
        table: Table,
    ) -> None:
        self.engine = Engine(path, durability, busy_timeout)
        self.notifier = LocalNotifier()
        self._watch = Watch(self.engine, self.notifier)
        self._sql = cut(load_sources() if sources is None else sources)
        self._table = table

    def open(self) -> None:
        """Open the file and begin to watch it. Blocks."""
        self.engine.open()
        try:
            self._watch.start()
        except BaseException:
            self.engine.close()
            raise

    def close(self) -> None:
        """Finish the calls that were handed in, and close the file. Blocks."""
        self._watch.stop()
        self.engine.close()

    async def transact(
        self,
        queue: QueueRef,
        move: Callable[[QueueTransaction], T],
        peek: Callable[[sqlite3.Connection], T | None] | None = None,
        *,
        creates: bool = True,
    ) -> T:
        """The answer of a call on a queue, once it is committed.

        QueueAbsentError where there is no such queue and the call creates none. `peek` looks first, without
        the lock, whether there is anything to do: its answer stands unless None.
        """
        notifications: set[Topic] = set()
        is_absent = False

        def work(connection: sqlite3.Connection) -> T:
            nonlocal is_absent
            try:
                transaction = QueueTransaction(connection, self._sql, queue, self._table, creates=creates)
            except QueueAbsentError:
                # Not raised here: it would take back what other calls did in this transaction.
                is_absent = True
                return None  # type: ignore[return-value]
            is_absent = False
            answer = move(transaction)
            transaction.close()
            notifications.update(transaction.notifications)
            return answer

        answer: T = await _answer(self.engine.write(work, peek), queue)
        if is_absent:
            raise QueueAbsentError
        for topic in notifications:
            self.notifier.notify(queue, topic)
        return answer

    async def notify_soon(self, queue: QueueRef, topic: Topic) -> None:
        """Notify the subscribers of a queue in this process; those of others are notified of each commit."""
        self.notifier.notify(queue, topic)

    async def write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """The answer of some work in the next transaction, once it is committed."""
        return await _answer(self.engine.write(work))

    async def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """The answer of some work that sees what is committed."""
        return await _answer(self.engine.read(work))


async def _answer(working: Future[T], queue: QueueRef | None = None) -> T:
    """What the work answers. A value of a type that its column never has, as files allow, is a damage."""
    try:
        return await asyncio.wrap_future(working)
    except ROW_ERRORS as error:
        if isinstance(error, PenstockError):
            raise
        found = f"{type(error).__name__}: {error}"
        if queue is None:
            raise StoreFormatError(f"the file has rows that cannot be read: {found}") from error
        raise DamagedQueueError(f"queue {queue} has rows that cannot be read: {found}") from error
