"""The worker's hold on its fork server: starts it, asks it for children, hears how they ended."""

import asyncio
import logging
import os
import secrets
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import msgspec

from penstock.core.errors import ConfigError
from penstock.sandbox import tree
from penstock.worker.executors.process.load import Importing
from penstock.worker.executors.process.wire import (
    CONTROL_LIMIT,
    Broken,
    Exited,
    FrameError,
    Frames,
    FromServer,
    Message,
    Ready,
    Signal,
    Spawn,
    Start,
    Unspawned,
    frame,
)

_LOGGER: Final = logging.getLogger("penstock.worker")
START_WAIT: Final = 60.0
"""Seconds that the app has to be imported."""
END_WAIT: Final = 4.0
"""Seconds that the fork server has to end with all its children."""
_MODULE: Final = "penstock.worker.executors.process.server"
_DECODER: Final = msgspec.json.Decoder(FromServer)


class Exit(msgspec.Struct, frozen=True):
    """How a process ended: its exit code, minus the signal that killed it, or why there never was one."""

    code: int
    error: str | None = None


class Process:
    """A process that the fork server made, or will. `exited` is done once its whole tree is gone."""

    def __init__(self, host: "Host", number: int, can_dump: bool) -> None:
        self._host = host
        self._number = number
        self.can_dump = can_dump
        self.exited: asyncio.Future[Exit] = asyncio.get_running_loop().create_future()

    def send_signal(self, sent: int) -> None:
        """Signal the process, unless it has ended."""
        if not self.exited.done():
            self._host.signal(self._number, sent)


class Host:
    """One fork server for all workers of an app in this process; made anew when it was killed.

    On one event loop. `open` and `close` are counted.
    """

    def __init__(self, start: Start) -> None:
        self._start = start
        self._users = 0
        self._opening = asyncio.Lock()
        self._server: _Server | None = None

    async def open(self) -> None:
        """Have a fork server; ConfigError when it cannot import the app."""
        self._users += 1
        try:
            await self.ready()
        except BaseException:
            self._users -= 1
            raise

    async def close(self) -> None:
        """End it when the last user is gone, with all its children."""
        self._users -= 1
        if not self._users and self._server is not None:
            server, self._server = self._server, None
            await server.end()

    async def ready(self) -> None:
        """Wait until there is a fork server with the app imported."""
        if Importing.is_under_way:
            raise ConfigError(
                "it starts a worker when it is imported: put what starts it under if __name__ == '__main__':"
            )
        async with self._opening:
            if self._server is None or self._server.is_gone:
                server = self._server = _Server()
                await server.start(self._start)

    def spawn(self, task: str, fds: Sequence[int], can_dump: bool = False) -> Process:
        """A process for the task, with these descriptors, which stay the caller's; `ready` came before."""
        if self._server is None:
            raise ConfigError("the worker's processes are closed")
        return self._server.spawn(self, task, fds, can_dump)

    def signal(self, number: int, sent: int) -> None:
        """Signal a process of the present fork server."""
        if self._server is not None:
            self._server.tell(Signal(number, sent))

    @property
    def pid(self) -> int:
        """Of the fork server."""
        return -1 if self._server is None else self._server.pid

    def keeps(self, task: str) -> bool:
        """True when a process of the task may execute another job."""
        return self._server is not None and task not in self._server.for_one_job

    def dump_stacks(self) -> None:
        """Let every handler's process write its stacks, with what else it writes."""
        if self._server is not None:
            for process in self._server.living.values():
                if process.can_dump:
                    process.send_signal(signal.SIGQUIT)


class _Server:
    """One fork server, from its start to its end."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._frames = Frames(CONTROL_LIMIT)
        self._ready: asyncio.Future[None] = self._loop.create_future()
        self._mark = secrets.token_hex(8)
        self._spawned = 0
        self.living: dict[int, Process] = {}
        self.is_gone = False
        self.for_one_job: frozenset[str] = frozenset()
        ours, theirs = socket.socketpair()
        self._sock = ours
        with theirs:
            flags: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
            self._popen = subprocess.Popen(  # noqa: S603 (this interpreter, a module of ours)
                [sys.executable, *flags, "-m", _MODULE, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=2,
                env=os.environ | {tree.MARK: self._mark},
                start_new_session=True,
            )
        ours.setblocking(False)
        self._loop.add_reader(ours.fileno(), self._readable)

    @property
    def pid(self) -> int:
        """Of its process."""
        return self._popen.pid

    async def start(self, message: Start) -> None:
        """Have the app imported, or ConfigError."""
        self.tell(message)
        try:
            async with asyncio.timeout(START_WAIT):
                await self._ready
        except TimeoutError:
            await self.end()
            raise ConfigError(f"the fork server did not import the app within {START_WAIT:g} s") from None
        except BaseException:
            await self.end()
            raise

    def spawn(self, host: Host, task: str, fds: Sequence[int], can_dump: bool) -> Process:
        """A new process."""
        self._spawned += 1
        process = Process(host, self._spawned, can_dump)
        self.living[self._spawned] = process
        self.tell(Spawn(self._spawned, task), fds)
        return process

    def tell(self, message: Message, fds: Sequence[int] = ()) -> None:
        """Frames to the server are few and small; one that takes none any more is as good as dead."""
        if self.is_gone:
            return
        data = frame(message)
        try:
            sent = socket.send_fds(self._sock, [data], list(fds))
        except OSError:
            sent = 0
        if sent < len(data):
            self._lose()

    async def end(self) -> None:
        """Let it end, with all its children; killed when it does not."""
        self._leave()
        with suppress(TimeoutError):
            async with asyncio.timeout(END_WAIT):
                while self._popen.poll() is None:  # noqa: ASYNC110 (no watcher is wanted in the worker's loop)
                    await asyncio.sleep(0.005)
        self._finish()

    def _readable(self) -> None:
        try:
            data = self._sock.recv(1 << 16)
            for body in self._frames.feed(data):
                self._hear(_DECODER.decode(body))
        except (BlockingIOError, InterruptedError):
            return
        except (OSError, FrameError, msgspec.MsgspecError):
            data = b""
        if not data:
            self._lose()

    def _hear(self, message: FromServer) -> None:
        match message:
            case Ready(threads, for_one_job):
                self.for_one_job = frozenset(for_one_job)
                if threads > 1:
                    _LOGGER.warning(
                        "importing the app started %d threads: processes forked beside them may deadlock",
                        threads - 1,
                    )
                if not self._ready.done():
                    self._ready.set_result(None)
            case Broken(error):
                if not self._ready.done():
                    self._ready.set_exception(ConfigError(error))
            case Unspawned(number, error):
                self._ended(number, Exit(-1, error))
            case Exited(number, status, left):
                if left:
                    _LOGGER.error("%d processes that handlers started cannot be ended", left)
                self._ended(number, Exit(os.waitstatus_to_exitcode(status)))

    def _ended(self, number: int, how: Exit) -> None:
        process = self.living.pop(number, None)
        if process is not None and not process.exited.done():
            process.exited.set_result(how)

    def _lose(self) -> None:
        """It was killed or hangs: what it made must not outlive it."""
        if self.is_gone:
            return
        self._leave()
        self._finish()
        _LOGGER.error("the fork server ended: its processes are killed, the next job starts another")
        if not self._ready.done():
            self._ready.set_exception(ConfigError("the fork server ended while it imported the app"))

    def _leave(self) -> None:
        if not self.is_gone:
            self.is_gone = True
            self._loop.remove_reader(self._sock.fileno())
            self._sock.close()

    def _finish(self) -> None:
        if self._popen.poll() is None:
            self._popen.kill()
            self._popen.wait()
        if self.living or self._popen.returncode:
            tree.kill_marked(self._mark)
        for number in list(self.living):
            self._ended(number, Exit(-signal.SIGKILL, "its fork server ended"))
