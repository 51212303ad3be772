"""Connections and threads of one SQLite file: one writer that joins calls, one reader, one watcher."""

import os
import queue
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeVar

from penstock.core.errors import StoreError, StoreUnavailableError, StoreVersionError
from penstock.stores.private_files import create_private_file
from penstock.stores.sqlite.faults import is_busy, translated
from penstock.stores.sqlite.migrate import begin, migrate
from penstock.stores.sqlite.sources import load_sources
from penstock.stores.values import Durability

T = TypeVar("T")
Work = Callable[[sqlite3.Connection], T]

JOINED_CALLS: Final = 64
"""Calls joined into one transaction at most, so that none waits long for the others."""
_TOUCHED: Final = load_sources()["shared/touched.sql"]
OLDEST_SQLITE: Final = (3, 35, 0)


class Engine:
    """One file. Calls are handed to threads and answered by futures, from whichever event loop asks."""

    def __init__(self, path: Path, durability: Durability, busy_timeout: float) -> None:
        self.path = path
        self.durability = durability
        self.busy_timeout = busy_timeout
        self.schema_version = 0
        self._identity: tuple[int, int] | None = None
        self._writer = _CallThread("penstock-sqlite-writer", self._connect_writer, self._write)
        self._reader = _CallThread("penstock-sqlite-reader", self._connect, self._read)

    def open(self) -> None:
        """Open the file, bring it to this version, start the threads. Blocks."""
        if sqlite3.sqlite_version_info < OLDEST_SQLITE:
            raise StoreVersionError(f"SQLite {sqlite3.sqlite_version} is too old: 3.35 or newer is needed")
        # The log and the shared memory beside it get the mode of this file from SQLite.
        create_private_file(self.path)
        try:
            connection = self._connect()
        except sqlite3.Error as error:
            raise translated(error, str(self.path)) from error
        try:
            self._use_wal(connection)
            self.schema_version = migrate(connection, self.busy_timeout, str(self.path))
        except sqlite3.Error as error:
            raise translated(error, str(self.path)) from error
        finally:
            connection.close()
        self._identity = self._found_identity()
        try:
            self._writer.start()
            self._reader.start()
        except sqlite3.Error as error:
            self.close()
            raise translated(error, str(self.path)) from error

    def close(self) -> None:
        """Finish what was handed in, then stop the threads. Blocks, for a bounded time."""
        self._reader.stop()
        self._writer.stop()

    def write(self, work: Work[T], peek: Work[T | None] | None = None) -> "Future[T]":
        """Run in the next transaction; the future is done once it is committed.

        `peek` looks first, without the lock, whether there is anything to do: its answer stands unless None.
        """
        return self._writer.put(work, peek)

    def read(self, work: Work[T]) -> "Future[T]":
        """Run on the reader's connection: sees what is committed."""
        return self._reader.put(work)

    def connect_watch(self) -> sqlite3.Connection:
        """A connection for asking whether anyone committed anything."""
        try:
            return self._connect()
        except sqlite3.Error as error:
            raise translated(error, str(self.path)) from error

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self.path,
            timeout=0.1,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=256,
        )
        try:
            connection.execute("PRAGMA temp_store = MEMORY")
            connection.execute("PRAGMA cache_size = -65536")
        except sqlite3.Error:
            connection.close()
            raise
        return connection

    def _connect_writer(self) -> sqlite3.Connection:
        connection = self._connect()
        level = "FULL" if self.durability is Durability.POWER else "NORMAL"
        connection.execute(f"PRAGMA synchronous = {level}")
        connection.execute("PRAGMA journal_size_limit = 67108864")
        connection.execute("PRAGMA wal_autocheckpoint = 4000")
        connection.execute(_TOUCHED)
        return connection

    def _use_wal(self, connection: sqlite3.Connection) -> None:
        # Switching a new file to WAL needs it alone for a moment; a process that comes second finds it done.
        for _ in range(200):
            with suppress(sqlite3.OperationalError):
                (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
                if mode == "wal":
                    return
            threading.Event().wait(0.01)
        (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
        if mode != "wal":
            raise StoreUnavailableError(
                f"{self.path}: SQLite cannot use a write-ahead log here (found {mode!r})"
            )

    def _write(self, connection: sqlite3.Connection, calls: "list[_Call]") -> None:
        try:
            if len(calls) == 1 and (answer := calls[0].peeked(connection)) is not None:
                calls[0].answer(answer)
                return
            answers = self._transaction(connection, calls)
        except Exception as error:  # noqa: BLE001 (handed on to the callers)
            if len(calls) == 1:
                calls[0].fail(self._translated(error))
                return
            # One of them is at fault: each alone, so that it does not take the others down.
            for call in calls:
                self._write(connection, [call])
            return
        for call, answer in zip(calls, answers, strict=True):
            call.answer(answer)

    def _transaction(self, connection: sqlite3.Connection, calls: "list[_Call]") -> list[Any]:
        begin(connection, self.busy_timeout, str(self.path))
        try:
            self._check_identity()
            answers = [call.work(connection) for call in calls]
            connection.execute("COMMIT")
        except BaseException:
            # After a full disk SQLite may have rolled back by itself.
            with suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
            raise
        return answers

    def _read(self, connection: sqlite3.Connection, calls: "list[_Call]") -> None:
        for call in calls:
            for last_try in (False, False, False, True):
                try:
                    self._check_identity()
                    call.answer(call.work(connection))
                except sqlite3.OperationalError as error:
                    if is_busy(error) and not last_try:
                        continue
                    call.fail(self._translated(error))
                except Exception as error:  # noqa: BLE001 (handed on to the caller)
                    call.fail(self._translated(error))
                break

    def _check_identity(self) -> None:
        """What is open must still be what others find at the path: else jobs would go where nobody looks."""
        if self._found_identity() != self._identity:
            raise StoreUnavailableError(
                f"{self.path}: was moved, deleted or replaced while open here; put it back or restart"
            )

    def _found_identity(self) -> tuple[int, int] | None:
        try:
            found = os.stat(self.path)  # noqa: PTH116 (on every transaction: a path object costs more than the call)
        except FileNotFoundError:
            return None
        return found.st_dev, found.st_ino

    def _translated(self, error: Exception) -> Exception:
        return translated(error, str(self.path)) if isinstance(error, sqlite3.Error) else error


class _Call:
    def __init__(self, work: Work[Any], peek: Work[Any] | None) -> None:
        self.work = work
        self.future: Future[Any] = Future()
        self._peek = peek

    def peeked(self, connection: sqlite3.Connection) -> Any:
        return None if self._peek is None else self._peek(connection)

    def answer(self, answer: Any) -> None:
        if self.future.set_running_or_notify_cancel():
            self.future.set_result(answer)

    def fail(self, error: Exception) -> None:
        if self.future.set_running_or_notify_cancel():
            self.future.set_exception(error)


class _CallThread:
    """A daemon thread with a connection of its own, taking calls in the order they come."""

    def __init__(
        self,
        name: str,
        connect: Callable[[], sqlite3.Connection],
        run: Callable[[sqlite3.Connection, list[_Call]], None],
    ) -> None:
        self._name = name
        self._connect = connect
        self._run = run
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        # Connected here: a thread that fails at it would leave its callers waiting for ever.
        connection = self._connect()
        self._thread = threading.Thread(target=self._work, args=[connection], name=self._name, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        if self._thread is not None:
            self._calls.put(None)
            self._thread.join(timeout=30)
            self._thread = None

    def put(self, work: Work[T], peek: Work[T | None] | None = None) -> "Future[T]":
        if self._thread is None:
            raise StoreError("the store is not open: use it inside `async with app`")
        call = _Call(work, peek)
        self._calls.put(call)
        return call.future

    def _work(self, connection: sqlite3.Connection) -> None:
        try:
            while True:
                calls, stopping = self._next()
                if calls:
                    self._run(connection, calls)
                if stopping:
                    return
        finally:
            connection.close()

    def _next(self) -> tuple[list[_Call], bool]:
        calls: list[_Call] = []
        call = self._calls.get()
        while call is not None:
            calls.append(call)
            if len(calls) == JOINED_CALLS:
                return calls, False
            try:
                call = self._calls.get_nowait()
            except queue.Empty:
                return calls, False
        return calls, True
