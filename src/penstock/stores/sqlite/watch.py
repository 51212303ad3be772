"""Sees that another process changed the file, without running any query of its own on it."""

import sqlite3
import threading
import time
from contextlib import suppress
from typing import Final

from penstock.core.errors import StoreError
from penstock.stores.notifier import LocalNotifier
from penstock.stores.sqlite.engine import Engine

EVERY_SECONDS: Final = 0.005
WRITER_SECONDS: Final = 0.05
"""How long the writer is waited for, which may wait for the lock itself."""


class Watch:
    """A thread that compares SQLite's data version while anyone subscribes, and notifies all of changes.

    What this store itself changed it has told those concerned, and only those.
    """

    def __init__(self, engine: Engine, notifier: LocalNotifier) -> None:
        self._engine = engine
        self._notifier = notifier
        self._stopping = False
        self._seen: int | None = None
        self._others_seen: int | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to watch. Connects before it returns: later the file might have been moved."""
        self._stopping = False
        self._thread = threading.Thread(
            target=self._run, args=[self._engine.connect_watch()], name="penstock-sqlite-watch", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """End watching."""
        self._stopping = True
        if self._thread is not None:
            self._thread.join(timeout=5)

    def look(self, connection: sqlite3.Connection) -> bool:
        """Whether others changed the file since the last look; also where that cannot be told."""
        version = _version(connection)
        if version == self._seen:
            return False
        others = self._version_of_others()
        self._seen, before = version, self._others_seen
        self._others_seen = others
        return others is None or others != before

    def _run(self, connection: sqlite3.Connection) -> None:
        try:
            while not self._stopping:
                # Cheaper than waiting for an event, and it is never long.
                time.sleep(EVERY_SECONDS)
                if self._notifier.is_empty:
                    continue
                # A busy file has just changed; the next look will see it.
                with suppress(sqlite3.OperationalError):
                    if self.look(connection):
                        self._notifier.notify_all()
        finally:
            connection.close()

    def _version_of_others(self) -> int | None:
        """The data version as the writer sees it: its own commits do not change it. None if it is busy."""
        with suppress(TimeoutError, StoreError, sqlite3.Error):
            return self._engine.write(_version, _version).result(WRITER_SECONDS)
        return None


def _version(connection: sqlite3.Connection) -> int:
    (version,) = connection.execute("PRAGMA data_version").fetchone()
    return int(version)
