"""A child of the fork server: executes the jobs of one task until its worker wants no more of them."""

import asyncio
import contextvars
import faulthandler
import os
import resource
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any, Final, NoReturn

from msgspec.structs import replace

from penstock.core import decide
from penstock.core.decide import Postponed, Raised, RaisedFail
from penstock.core.errors import PayloadError, SoftTimeoutError
from penstock.core.job import Claimed, Options
from penstock.core.payload import PROGRESS_LIMIT, check_json, encode_json
from penstock.sandbox import tree
from penstock.sandbox.confine import Plan
from penstock.tasks.context import CURRENT, JobContext
from penstock.tasks.signals import Signal
from penstock.tasks.task import Task
from penstock.worker.endings import Withdrawn, after_signal, error_text, text_of
from penstock.worker.executors.process.channel import Channel, ProcessChildJobs
from penstock.worker.executors.process.load import App
from penstock.worker.executors.process.wire import OVERHEAD, Done, Progress, Run, Unfit

_AGAIN: Final = 0.01
"""Seconds after which an interrupt is tried again that came while a frame was being written."""


class Stopped(BaseException):
    """The worker's last word before it kills."""


def serve(app: App, task: Task[..., ..., Any], fds: Sequence[int], plan: Plan | None) -> None:
    """Execute what comes over the first descriptor; what the handler prints goes to the second."""
    wire, output = fds
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    for fd in (nothing, output):
        os.close(fd)
    faulthandler.enable(2)
    faulthandler.register(signal.SIGQUIT, 2)
    with suppress(AttributeError, ValueError):
        sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    app.forget_store()
    channel = Channel(socket.socket(fileno=wire), 2 * task.payload_limit + OVERHEAD)
    if plan is not None:
        try:
            plan.apply([wire])
        except Exception as error:
            channel.send(Unfit(error_text(error)))
            raise
    Child(task, channel).run()


class Child:
    """One task, one wire, one job at a time."""

    def __init__(self, task: Task[..., ..., Any], channel: Channel) -> None:
        self._task = task
        self._channel = channel
        self._interrupts = Interrupts(channel)
        self._memory = _memory()
        self._runner: asyncio.Runner | None = None

    def run(self) -> None:
        """Until the wire ends."""
        while (run := self._channel.next_run()) is not None:
            try:
                done = self._execute(run)
            except Stopped:
                _die()
            # The handler may have closed them, or put something else there.
            with suppress(Exception):
                sys.stdout.flush()
                sys.stderr.flush()
            self._channel.send(done)

    def _execute(self, run: Run) -> Done:
        looked = False

        def is_cancelled() -> bool:
            nonlocal looked
            found = self._channel.is_stopped(run.number)
            looked = looked or found
            return found

        try:
            done = self._outcome(run, self._context(run, is_cancelled))
        except Stopped:
            raise
        except BaseException as error:  # noqa: BLE001 (a handler's exit or interrupt is its own error)
            done = _raised(run, error)
        return replace(
            done,
            saw_stop=looked or (self._task.is_async and self._channel.is_stopped(run.number)),
            has_left=tree.has_children(),
            grown=_memory() - self._memory,
        )

    def _outcome(self, run: Run, ctx: JobContext) -> Done:
        try:
            args, kwargs = self._task.bind(run.payload, ctx)
        except PayloadError as error:
            return _failed(run, "invalid", error)
        CURRENT.set(ctx)
        if self._task.is_async:
            value = self._awaited(run, args, kwargs)
        else:
            with self._interrupts.within(run, run.soft):
                value = self._task.function(*args, **kwargs)
        return Done(number=run.number, kind="returned", result=self._task.encode_result(value))

    def _awaited(self, run: Run, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        if self._runner is None:
            self._runner = asyncio.Runner()
        # The soft limit comes through the loop.
        with self._interrupts.within(run, None):
            return self._runner.run(self._watched(run, args, kwargs), context=contextvars.copy_context())

    async def _watched(self, run: Run, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """The handler, cancelled when the worker says so and when its soft limit is over."""
        loop = asyncio.get_running_loop()
        handler: asyncio.Task[Any] = loop.create_task(self._task.function(*args, **kwargs))
        is_told = False

        def look() -> None:
            nonlocal is_told
            if not is_told and self._channel.is_stopped(run.number):
                is_told = True
                handler.cancel()

        is_late = False

        def late() -> None:
            nonlocal is_late
            is_late = not handler.done()
            handler.cancel()

        loop.add_reader(self._channel.fileno(), look)
        timer = None if run.soft is None else loop.call_later(run.soft, late)
        try:
            return await handler
        except asyncio.CancelledError:
            if is_late:
                raise _soft(run) from None
            raise
        finally:
            loop.remove_reader(self._channel.fileno())
            if timer is not None:
                timer.cancel()

    def _context(self, run: Run, is_cancelled: Callable[[], bool]) -> JobContext:
        return JobContext(
            id=run.id,
            task=self._task.name,
            queue=run.queue,
            tenant=run.tenant,
            worker=run.worker,
            attempt=run.attempt,
            max_attempts=run.max_attempts,
            delivery=run.delivery,
            drive=run.drive,
            fence=run.fence,
            priority=run.priority,
            key=run.key,
            enqueued_at=run.enqueued_at,
            deadline=run.deadline,
            report=self._report,
            cancelled=is_cancelled,
            child_jobs=ProcessChildJobs(self._channel, self._task),
            lease=_no_lease(self._task.name, run),
        )

    def _report(self, value: Any) -> None:
        check_json("progress", value, PROGRESS_LIMIT)
        self._channel.send(Progress(encode_json("progress", value, PROGRESS_LIMIT)))


class Interrupts:
    """Exceptions from outside in a handler that runs: its soft limit, and the worker's last word."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._run: Run | None = None
        self._soft_at: float | None = None
        self._is_last_word = False
        self._install()

    @contextmanager
    def within(self, run: Run, soft: float | None) -> Iterator[None]:
        """They come in here and nowhere else."""
        # The handler before may have put its own in their place.
        self._install()
        self._run, self._is_last_word = run, False
        if soft is not None:
            self._soft_at = time.monotonic() + soft
            signal.setitimer(signal.ITIMER_REAL, soft)
        try:
            yield
        finally:
            self._run = self._soft_at = None
            signal.setitimer(signal.ITIMER_REAL, 0)

    def _install(self) -> None:
        signal.signal(signal.SIGALRM, self._alarm)
        signal.signal(signal.SIGTERM, self._term)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM, signal.SIGTERM})

    def _term(self, number: int, where: FrameType | None) -> None:
        self._is_last_word = True
        self._alarm(number, where)

    def _alarm(self, number: int, where: FrameType | None) -> None:
        run = self._run
        if run is None:
            return
        if self._channel.is_busy:
            # An exception now would cut a frame in two.
            signal.setitimer(signal.ITIMER_REAL, _AGAIN)
            return
        # A SIGTERM that was not announced was for the worker: process managers signal everyone.
        if self._is_last_word and self._channel.is_stopped(run.number):
            raise Stopped
        self._is_last_word = False
        if self._soft_at is not None:
            left = self._soft_at - time.monotonic()
            if left <= 0:
                self._soft_at = None
                raise _soft(run)
            signal.setitimer(signal.ITIMER_REAL, left)


def _die() -> NoReturn:
    """End by the signal that was sent, so that the worker sees which."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGTERM)
    os._exit(1)


def _soft(run: Run) -> SoftTimeoutError:
    return SoftTimeoutError(f"the execution took longer than {run.soft:g} s, its soft limit")


def _raised(run: Run, error: BaseException) -> Done:
    if isinstance(error, SoftTimeoutError):
        return _failed(run, "late", error)
    if not isinstance(error, Signal):
        return _failed(run, "raised", error)
    match after_signal(error):
        case Raised(_, _, after_ms):
            after = None if after_ms is None else after_ms / 1000
            return _failed(run, "retry" if after is not None else "raised", error, after)
        case Postponed(delay_ms):
            return Done(number=run.number, kind="snooze", after=delay_ms / 1000)
        case RaisedFail(reason):
            return Done(number=run.number, kind="fail", reason=reason)
        case Withdrawn(reason):
            return Done(number=run.number, kind="cancel", reason=reason)
        case _:
            return _failed(run, "raised", error)


def _failed(run: Run, kind: str, error: BaseException, after: float | None = None) -> Done:
    return Done(
        number=run.number,
        kind=kind,
        error=type(error).__qualname__,
        message=decide.clean_error(text_of(error)),
        text=decide.clean_error(error_text(error)),
        after=after,
    )


def _memory() -> int:
    """Bytes that this process has in memory."""
    with suppress(OSError, ValueError, IndexError):
        return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * resource.getpagesize()
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


def _no_lease(task: str, run: Run) -> Claimed:
    """Whose children are meant: the worker knows, and has the token."""
    return Claimed(
        id=run.id,
        task=task,
        payload=b"",
        priority=run.priority,
        options=Options(),
        enqueued_at=round(run.enqueued_at * 1000),
        drive=run.drive,
        delivery=run.delivery,
        attempts=run.attempt - 1,
        token="",
        fence=run.fence,
        deadline=0,
        headers=run.headers,
    )
