"""What a process writes for people: passed on within bounds, its end kept for the dead letter."""

import asyncio
import os
from typing import Final

from penstock.telemetry.nonblocking_stderr import STDERR

TAIL: Final = 3_000
"""Bytes that a dead letter shows."""
PASSED_ON: Final = 1 << 20
"""Bytes per job that go on to the worker's own standard error."""


class Output:
    """The reading end of a pipe, on one event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._fd, self.theirs = os.pipe()
        os.set_blocking(self._fd, False)
        self._loop.add_reader(self._fd, self._read)
        self._tail = bytearray()
        self._line = bytearray()
        self._passed = 0
        self._is_closed = False

    def begin(self) -> None:
        """What comes from now on belongs to the next job."""
        self._tail.clear()
        self._passed = 0

    def close(self) -> None:
        """Take in what is there, and nothing more."""
        if self._is_closed:
            return
        # Bounded: whoever wrote is gone, or is not listened to.
        for _ in range(64):
            if not self._read():
                break
        self._pass_on(b"\n" if self._line else b"")
        self._is_closed = True
        self._loop.remove_reader(self._fd)
        os.close(self._fd)

    @property
    def tail(self) -> str:
        """The last of it, as text; the first line may be cut."""
        return self._tail[-TAIL:].decode("utf-8", "replace").strip()

    def _read(self) -> bool:
        try:
            data = os.read(self._fd, 1 << 16)
        except (BlockingIOError, InterruptedError):
            return False
        if not data:
            self._loop.remove_reader(self._fd)
            return False
        self._tail += data
        if len(self._tail) > 4 * TAIL:
            del self._tail[:-TAIL]
        self._pass_on(data)
        return True

    def _pass_on(self, data: bytes) -> None:
        """Whole lines, so that those of several processes do not run into each other."""
        if self._passed >= PASSED_ON:
            return
        self._passed += len(data)
        if self._passed >= PASSED_ON:
            data = (
                data[:1024] + f"\n… more than {PASSED_ON} bytes by one job: the rest is left out\n".encode()
            )
        self._line += data
        end = self._line.rfind(b"\n") + 1
        if not end and len(self._line) < TAIL:
            return
        lines, self._line = self._line[: end or None], self._line[end or len(self._line) :]
        if lines:
            STDERR.write(bytes(lines))
