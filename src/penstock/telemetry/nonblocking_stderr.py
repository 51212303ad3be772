"""Writing to standard error from a separate thread, so that a full pipe never blocks the caller."""

import atexit
import os
import select
import sys
import threading
from collections import deque
from contextlib import suppress
from typing import Final

LIMIT: Final = 1 << 20
"""Maximum number of bytes that wait to be written; further bytes are dropped, and a line tells how many."""
FLUSH_SECONDS: Final = 1.0
"""Time to write the waiting bytes when the process ends."""


class NonblockingStderr:
    """Writes bytes in order; callable from any thread, and never blocks for long."""

    def __init__(self, limit: int = LIMIT) -> None:
        self._limit = limit
        self._pid = os.getpid()
        # A signal handler may log while its thread holds the lock, so the lock is reentrant.
        self._changed = threading.Condition(threading.RLock())
        self._waiting: deque[bytes] = deque()
        self._size = 0
        self._dropped = 0
        self._thread: threading.Thread | None = None

    def write(self, data: bytes) -> None:
        """Queue the bytes for the writing thread."""
        if os.getpid() != self._pid:
            # This process was forked, and the writing thread is in its parent only.
            _write_all(data)
            return
        with self._changed:
            if self._size + len(data) > self._limit:
                self._dropped += len(data)
                return
            self._report_dropped()
            self._add(data)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="penstock-stderr", daemon=True)
                self._thread.start()
                atexit.register(self.flush)
            self._changed.notify_all()

    def flush(self, seconds: float = FLUSH_SECONDS) -> None:
        """Wait until all bytes are written, for at most this time."""
        if os.getpid() == self._pid:
            with self._changed:
                self._changed.wait_for(lambda: not self._size, seconds)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting)
                data = self._waiting.popleft()
            _write_all(data)
            with self._changed:
                self._size -= len(data)
                if not self._waiting:
                    self._report_dropped()
                self._changed.notify_all()

    def _report_dropped(self) -> None:
        if self._dropped:
            self._add(f"… standard error was not read in time: {self._dropped} bytes were dropped\n".encode())
            self._dropped = 0

    def _add(self, data: bytes) -> None:
        self._waiting.append(data)
        self._size += len(data)


def _write_all(data: bytes) -> None:
    # Without standard error, the bytes are discarded.
    with suppress(OSError, ValueError, AttributeError):
        fd = sys.__stderr__.fileno()  # type: ignore[union-attr]
        while data:
            try:
                data = data[os.write(fd, data) :]
            except BlockingIOError:
                select.select([], [fd], [])


STDERR: Final = NonblockingStderr()
