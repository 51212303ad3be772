"""A child as its worker sees it: idle, or with one job."""

import asyncio
import os
import signal
import socket
from collections.abc import Callable, Hashable
from contextlib import suppress
from typing import Final

import msgspec

from penstock.core.errors import PayloadError
from penstock.worker.executors.output import Output
from penstock.worker.executors.process.host import Exit, Host
from penstock.worker.executors.process.wire import (
    Ask,
    Done,
    FrameError,
    Frames,
    FromChild,
    Message,
    Progress,
    Run,
    Unfit,
    frame,
)

END_WAIT: Final = 1.0
"""Seconds that a child has to end when it is wanted no more, or has closed its wire."""
_DECODER: Final = msgspec.json.Decoder(FromChild)


class Gone(msgspec.Struct, frozen=True):
    """The child ended without a word on its job; `broken` says what it told that is none."""

    how: Exit
    broken: str | None = None


class Kept:
    """One child. Whatever it sends, the worker survives it."""

    def __init__(self, host: Host, task: str, limit: int, seen: Hashable = None) -> None:
        self._loop = asyncio.get_running_loop()
        self._frames = Frames(limit)
        self._out = bytearray()
        self._done: asyncio.Future[Done | Gone] | None = None
        self._hear: Callable[[Progress | Ask], None] | None = None
        self._number = 0
        self._broken: str | None = None
        self._is_open = True
        self._ending: asyncio.TimerHandle | None = None
        self.task = task
        self.seen = seen
        """What its permissions granted just before it was made."""
        self.jobs = 0
        self.output = Output()
        self._sock, theirs = socket.socketpair()
        self._sock.setblocking(False)
        with theirs:
            self.process = host.spawn(task, [theirs.fileno(), self.output.theirs], can_dump=True)
        os.close(self.output.theirs)
        self._loop.add_reader(self._sock.fileno(), self._readable)
        self.process.exited.add_done_callback(self._exited)

    @property
    def is_usable(self) -> bool:
        """True while it can be given a job."""
        return self._is_open and self._done is None and not self.process.exited.done()

    def begin(self, run: Run, hear: Callable[[Progress | Ask], None]) -> "asyncio.Future[Done | Gone]":
        """Let it execute a job; `hear` gets what the handler says on the way."""
        self.jobs += 1
        self._number = run.number
        self._hear = hear
        self._done = self._loop.create_future()
        self.output.begin()
        self.send(run)
        return self._done

    def send(self, message: Message) -> None:
        """Tell the child, once it listens."""
        if not self._is_open:
            return
        was_empty = not self._out
        self._out += frame(message)
        if was_empty:
            self._write()

    def end(self) -> None:
        """Want it no more; killed if it does not end."""
        if self._is_open:
            self._is_open = False
            self._loop.remove_reader(self._sock.fileno())
            self._loop.remove_writer(self._sock.fileno())
            self._sock.close()
        self._end_soon()

    def kill(self) -> None:
        """End it, with all that it started."""
        self.process.send_signal(signal.SIGKILL)

    def _write(self) -> None:
        try:
            sent = self._sock.send(self._out)
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError:
            # It has closed its end: how it ended is told elsewhere.
            self._out.clear()
            return
        del self._out[:sent]
        if self._out:
            self._loop.add_writer(self._sock.fileno(), self._write_on)

    def _write_on(self) -> None:
        self._loop.remove_writer(self._sock.fileno())
        self._write()

    def _readable(self) -> bool:
        """Take in what came; False when there was nothing."""
        try:
            data = self._sock.recv(1 << 16)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            data = b""
        if not data:
            self._loop.remove_reader(self._sock.fileno())
            self._end_soon()
            return False
        if self._broken is None:
            try:
                for body in self._frames.feed(data):
                    self._take(_DECODER.decode(body))
            except (FrameError, msgspec.MsgspecError, UnicodeDecodeError, PayloadError) as error:
                self._break(f"sent what is not a frame: {error}")
        return True

    def _take(self, message: FromChild) -> None:
        match message:
            case Progress() | Ask():
                if self._hear is not None and self._done is not None:
                    self._hear(message)
            case Unfit(error):
                self._break(f"could not be confined: {error}")
            case Done(number=number):
                if self._done is None or number != self._number:
                    self._break("told the end of a job that it does not have")
                elif not self._done.done():
                    self._settle(message)

    def _break(self, what: str) -> None:
        self._broken = what
        self.kill()

    def _settle(self, outcome: Done | Gone) -> None:
        done, self._done, self._hear = self._done, None, None
        if done is not None and not done.done():
            done.set_result(outcome)

    def _exited(self, exited: asyncio.Future[Exit]) -> None:
        if self._ending is not None:
            self._ending.cancel()
        if self._is_open:
            # Its last words may be there and not read yet.
            while self._done is not None and self._readable():
                pass
        self.output.close()
        if self._broken is None and self._frames.has_rest:
            self._broken = "ended in the middle of a frame"
        self._settle(Gone(exited.result(), self._broken))
        with suppress(OSError):
            self.end()

    def _end_soon(self) -> None:
        if self._ending is None and not self.process.exited.done():
            self._ending = self._loop.call_later(END_WAIT, self.kill)
