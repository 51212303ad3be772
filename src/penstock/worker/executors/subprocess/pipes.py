"""A program's input and output, as lines within bounds."""

import asyncio
import os
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from penstock.worker.executors.output import Output
from penstock.worker.executors.process.host import Exit, Host

SHOWN: Final = 200
"""Bytes of a wrong line that are shown."""


class Pipes:
    """One program, from its start to its end. `hear` gets each line; ValueError from it ends the program."""

    def __init__(self, host: Host, task: str, *, limit: int, hear: Callable[[bytes], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._limit = limit
        self._hear = hear
        self._line = bytearray()
        self._in = bytearray()
        self._closes_input = False
        self._is_done = False
        self.broken: str | None = None
        self.ended: asyncio.Future[Exit] = self._loop.create_future()
        self.output = Output()
        theirs_in, self._stdin = os.pipe()
        self._stdout, theirs_out = os.pipe()
        os.set_blocking(self._stdin, False)
        os.set_blocking(self._stdout, False)
        theirs = [theirs_in, theirs_out, self.output.theirs]
        try:
            self.process = host.spawn(task, theirs)
        finally:
            _close(theirs)
        self._loop.add_reader(self._stdout, self._readable)
        self.process.exited.add_done_callback(self._exited)

    def write(self, data: bytes, *, is_last: bool) -> None:
        """Send this to the program, once it reads; then its input ends if that was all."""
        if self._closes_input or self._is_done:
            return
        self._closes_input = is_last
        was_empty = not self._in
        self._in += data
        if was_empty:
            self._write()

    def _write(self) -> None:
        try:
            del self._in[: os.write(self._stdin, self._in)]
        except (BlockingIOError, InterruptedError):
            pass
        except OSError:
            # It does not read its input: its own affair.
            self._in.clear()
        if self._in:
            self._loop.add_writer(self._stdin, self._write_on)
        elif self._closes_input:
            os.close(self._stdin)
            self._stdin = -1

    def _write_on(self) -> None:
        self._loop.remove_writer(self._stdin)
        self._write()

    def _readable(self) -> bool:
        try:
            data = os.read(self._stdout, 1 << 16)
        except (BlockingIOError, InterruptedError):
            return False
        if not data:
            self._loop.remove_reader(self._stdout)
            return False
        if self.broken is None:
            self._line += data
            self._take()
        return True

    def _take(self) -> None:
        *lines, rest = self._line.split(b"\n")
        for line in lines:
            if line.strip() and self.broken is None:
                self._one(bytes(line))
        self._line = rest
        if len(rest) > self._limit:
            self._break(f"wrote a line of more than {self._limit} bytes to its standard output")

    def _one(self, line: bytes) -> None:
        try:
            self._hear(line)
        except ValueError as error:
            shown = line[:SHOWN].decode("utf-8", "replace")
            self._break(f"wrote to its standard output what is no line of the protocol: {shown!r} ({error})")

    def _break(self, what: str) -> None:
        self.broken = what
        self._line.clear()
        self.process.send_signal(signal.SIGKILL)

    def _exited(self, exited: asyncio.Future[Exit]) -> None:
        while self._readable():
            pass
        if self._line.strip() and self.broken is None:
            self._one(bytes(self._line))
        self._is_done = True
        self.output.close()
        self._loop.remove_reader(self._stdout)
        if self._stdin >= 0:
            self._loop.remove_writer(self._stdin)
        _close([fd for fd in (self._stdin, self._stdout) if fd >= 0])
        if not self.ended.done():
            self.ended.set_result(exited.result())


def _close(fds: Sequence[int]) -> None:
    for fd in fds:
        with suppress(OSError):
            os.close(fd)
