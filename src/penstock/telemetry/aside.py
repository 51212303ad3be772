"""Standard error, written by a thread of its own: where nobody reads it, nobody here waits for that."""

import atexit
import os
import select
import sys
import threading
from collections import deque
from contextlib import suppress
from typing import Final

LIMIT: Final = 1 << 20
"""Bytes that may wait to be written; what comes then is left out, and how much that was is said."""
FLUSH: Final = 1.0
"""Seconds that what waits has to be written when the process ends."""


class Aside:
    """Bytes in the order they came. From any thread, and never for long."""

    def __init__(self, limit: int = LIMIT) -> None:
        self._limit = limit
        self._pid = os.getpid()
        # A signal handler may log while this very thread holds it: it can be taken twice.
        self._changed = threading.Condition(threading.RLock())
        self._waiting: deque[bytes] = deque()
        self._size = 0
        self._left_out = 0
        self._thread: threading.Thread | None = None

    def write(self, data: bytes) -> None:
        """Have it written, soon."""
        if os.getpid() != self._pid:
            # Forked: the thread is not in this process.
            _put(data)
            return
        with self._changed:
            if self._size + len(data) > self._limit:
                self._left_out += len(data)
                return
            self._note()
            self._add(data)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="penstock-stderr", daemon=True)
                self._thread.start()
                atexit.register(self.flush)
            self._changed.notify_all()

    def flush(self, seconds: float = FLUSH) -> None:
        """Wait until all is written, and no longer than that."""
        if os.getpid() == self._pid:
            with self._changed:
                self._changed.wait_for(lambda: not self._size, seconds)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting)
                data = self._waiting.popleft()
            _put(data)
            with self._changed:
                self._size -= len(data)
                if not self._waiting:
                    self._note()
                self._changed.notify_all()

    def _note(self) -> None:
        if self._left_out:
            self._add(
                f"… standard error was not read in time: {self._left_out} bytes are left out\n".encode()
            )
            self._left_out = 0

    def _add(self, data: bytes) -> None:
        self._waiting.append(data)
        self._size += len(data)


def _put(data: bytes) -> None:
    # A process without standard error has nowhere to write to.
    with suppress(OSError, ValueError, AttributeError):
        fd = sys.__stderr__.fileno()  # type: ignore[union-attr]
        while data:
            try:
                data = data[os.write(fd, data) :]
            except BlockingIOError:
                select.select([], [fd], [])


STDERR: Final = Aside()
