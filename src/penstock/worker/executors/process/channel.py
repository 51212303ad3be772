"""The child's end of the wire to its worker."""

import asyncio
import socket
import threading
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar, cast

import msgspec

from penstock.core.errors import ConfigError, PenstockError, StaleLeaseError
from penstock.core.job import Claimed
from penstock.tasks.call import Call, check_own
from penstock.tasks.child_jobs import ChildJob
from penstock.tasks.handle import JobHandle, JobReader
from penstock.tasks.signals import Cancel
from penstock.tasks.task import Task
from penstock.worker.executors.process.wire import (
    Answer,
    Ask,
    Frames,
    Message,
    Run,
    SpawnCall,
    Stop,
    ToChild,
    frame,
)

T = TypeVar("T")
_DECODER: Final = msgspec.json.Decoder(ToChild)


class Channel:
    """Frames to and from the worker. What arrives is taken in when someone looks."""

    def __init__(self, sock: socket.socket, limit: int) -> None:
        self._sock = sock
        self._frames = Frames(limit)
        self._lock = threading.RLock()
        self._runs: list[Run] = []
        self._answers: dict[int, Answer] = {}
        self._stopped = -1
        self.is_gone = False
        self.is_busy = False
        """A frame is on its way: whoever interrupts the thread now would cut it in two."""
        self.waiting: set[asyncio.Future[None]] = set()
        """Who is to be told when something was read."""

    def fileno(self) -> int:
        """For event loops."""
        return self._sock.fileno()

    def send(self, message: Message) -> None:
        """Tell the worker; from any thread."""
        data = frame(message)
        with self._lock:
            self.is_busy = True
            try:
                self._sock.sendall(data)
            finally:
                self.is_busy = False

    def next_run(self) -> Run | None:
        """The next job, once there is one; None when the worker wants no more of this child."""
        while not self._runs and not self.is_gone:
            self._read(0)
        return self._runs.pop(0) if self._runs else None

    def poll(self) -> None:
        """Take in what has arrived."""
        with suppress(BlockingIOError):
            while not self.is_gone:
                self._read(socket.MSG_DONTWAIT)

    def is_stopped(self, number: int) -> bool:
        """True once the worker told the handler of that job to stop, or is no more."""
        self.poll()
        return self.is_gone or self._stopped >= number

    def answer(self, number: int, *, is_blocking: bool) -> Answer | None:
        """What came for a question; if it may block, then once it came."""
        while (found := self._answers.pop(number, None)) is None:
            if self.is_gone:
                raise PenstockError("the worker is gone: nobody answers")
            if not is_blocking:
                return None
            self._read(0)
        return found

    def _read(self, flags: int) -> None:
        with self._lock:
            self.is_busy = True
            try:
                data = self._sock.recv(1 << 16, flags)
                self.is_gone = not data
                for body in self._frames.feed(data):
                    self._take(_DECODER.decode(body))
            finally:
                self.is_busy = False
        for waiter in self.waiting:
            if not waiter.done():
                waiter.set_result(None)

    def _take(self, message: ToChild) -> None:
        match message:
            case Run():
                self._runs.append(message)
            case Stop(number):
                self._stopped = max(self._stopped, number)
            case Answer(number):
                self._answers[number] = message


class ProcessChildJobs:
    """A running job's children, asked for over the wire: there is no store here."""

    def __init__(self, channel: Channel, task: Task[..., ..., Any]) -> None:
        self._channel = channel
        self._task = task
        self._asked = 0

    async def children(self, job: Claimed, /) -> list[ChildJob]:
        """The job's children, in the order they were named."""
        return (await self._ask(None)).children

    async def spawn(self, job: Claimed, calls: Sequence[Call[Any]], /) -> list[JobHandle[Any]]:
        """Jobs that whoever waits for this one waits for, too."""
        check_own(self._task.sender, calls)
        wanted = [SpawnCall(each.task, each.queue, each.payload, each.options) for each in calls]
        ids = (await self._ask(wanted)).ids
        return [
            JobHandle(cast(JobReader, call.sender), call.queue, job_id, call.decode, created=True)
            for call, job_id in zip(calls, ids, strict=True)
        ]

    def wait(self, work: Coroutine[Any, Any, T], /) -> T:
        """The answer of a coroutine; in a plain function it waits nowhere but here."""
        with suppress(RuntimeError):
            asyncio.get_running_loop()
            work.close()
            raise ConfigError("ctx.blocking is for handlers that are plain functions: await here")
        if self._task.is_async:
            work.close()
            raise ConfigError("ctx.blocking is for handlers that are plain functions: await in the loop")
        try:
            work.send(None)
        except StopIteration as done:
            answer: T = done.value
            return answer
        work.close()
        raise PenstockError("this cannot be waited for in a plain function")

    async def _ask(self, spawn: list[SpawnCall] | None) -> Answer:
        self._asked += 1
        number = self._asked
        self._channel.send(Ask(number, spawn))
        answer = self._channel.answer(number, is_blocking=not self._task.is_async)
        while answer is None:
            await self._more()
            answer = self._channel.answer(number, is_blocking=False)
        if answer.error is not None:
            raise _error(answer)
        return answer

    async def _more(self) -> None:
        """Until the loop has read something."""
        read: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._channel.waiting.add(read)
        try:
            await read
        finally:
            self._channel.waiting.discard(read)


def _error(answer: Answer) -> Exception:
    if answer.error == "Cancel":
        return Cancel(answer.message)
    kind = StaleLeaseError if answer.error == "StaleLeaseError" else PenstockError
    return kind(answer.message)
