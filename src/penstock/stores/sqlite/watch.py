"""Sees that another process changed the file, without running any query of its own on it."""

import sqlite3
import threading
import time
from contextlib import suppress
from typing import Final

from penstock.stores.notifier import LocalNotifier
from penstock.stores.sqlite.engine import Engine

EVERY_SECONDS: Final = 0.005


class Watch:
    """A thread that compares SQLite's data version while anyone subscribes, and notifies all of changes."""

    def __init__(self, engine: Engine, notifier: LocalNotifier) -> None:
        self._engine = engine
        self._notifier = notifier
        self._stopping = False
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

    def _run(self, connection: sqlite3.Connection) -> None:
        seen = -1
        try:
            while not self._stopping:
                # Cheaper than waiting for an event, and it is never long.
                time.sleep(EVERY_SECONDS)
                if self._notifier.is_empty:
                    continue
                # A busy file has just changed; the next look will see it.
                with suppress(sqlite3.OperationalError):
                    (version,) = connection.execute("PRAGMA data_version").fetchone()
                    if version != seen:
                        seen = version
                        self._notifier.notify_all()
        finally:
            connection.close()
