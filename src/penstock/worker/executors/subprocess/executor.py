"""Jobs for programs: what a worker does around each."""

import asyncio
import signal
from functools import partial
from typing import Any

import msgspec

from penstock.core import decide
from penstock.core.errors import HandlerError
from penstock.core.payload import decode_json
from penstock.tasks.context import JobContext
from penstock.tasks.signals import Signal
from penstock.tasks.task import Task
from penstock.worker.delivery import Delivery
from penstock.worker.executors.deaths import died
from penstock.worker.executors.process.host import Exit, Host
from penstock.worker.executors.process.wire import OVERHEAD
from penstock.worker.executors.protocol import Call
from penstock.worker.executors.stopping import StopDelays, stop
from penstock.worker.executors.subprocess.lines import STOP, job_line, said, signal_of
from penstock.worker.executors.subprocess.pipes import Pipes


class Programs:
    """The executor for `subprocess`."""

    def __init__(self, host: Host, delays: StopDelays) -> None:
        self._delays = delays
        self._host = host
        self._running: set[Pipes] = set()

    async def open(self) -> None:
        """Start the fork server, or share the one there is."""
        await self._host.open()

    def prepare(self, delivery: Delivery, task: Task[..., ..., Any], ctx: JobContext, /) -> Call:
        """The call; the arguments are those that the function declares."""
        task.bind(delivery.job.payload, ctx)
        return partial(self._call, delivery, task, ctx)

    async def close(self) -> None:
        """Kill what is left."""
        for pipes in self._running:
            pipes.process.send_signal(signal.SIGKILL)
        await self._host.close()

    async def _call(self, delivery: Delivery, task: Task[..., ..., Any], ctx: JobContext) -> Any:
        await self._host.ready()
        talk = _Talk(ctx)
        pipes = Pipes(self._host, task.name, limit=task.payload_limit + OVERHEAD, hear=talk.hear)
        self._running.add(pipes)
        pipes.ended.add_done_callback(lambda _: self._running.discard(pipes))
        listens = bool(task.execution.listens)
        pipes.write(job_line(ctx, delivery.job.payload), is_last=not listens)

        def tell() -> None:
            talk.is_told = True
            if listens:
                pipes.write(STOP, is_last=True)
            else:
                pipes.process.send_signal(signal.SIGTERM)

        soft = task.execution.soft_timeout_ms
        timer = (
            None if soft is None else asyncio.get_running_loop().call_later(soft / 1000, talk.soften, tell)
        )
        try:
            await asyncio.wait([pipes.ended])
        except asyncio.CancelledError:
            if not await stop(delivery, pipes.process, pipes.ended, tell, self._delays):
                raise
        finally:
            if timer is not None:
                timer.cancel()
        delivery.saw_stop = talk.is_told and talk.result is None
        return task.decode_result(talk.ending(pipes.ended.result(), pipes, delivery.stop is not None))


class _Talk:
    """What a program said of its job."""

    def __init__(self, ctx: JobContext) -> None:
        self._ctx = ctx
        self._signal: Signal | None = None
        self.result: bytes | None = None
        self.is_told = False
        self._is_soft = False

    def hear(self, line: bytes) -> None:
        """Take in a line; ValueError when it says nothing."""
        found = said(line)
        if isinstance(found.progress, msgspec.Raw):
            self._ctx.progress(decode_json("progress", bytes(found.progress)))
        elif isinstance(found.result, msgspec.Raw):
            self.result = bytes(found.result)
        else:
            self._signal = signal_of(found)

    def soften(self, tell: Any) -> None:
        """The soft limit is over: tell the program, which may still end well."""
        self._is_soft = True
        tell()

    def ending(self, how: Exit, pipes: Pipes, is_stopped: bool) -> bytes | None:
        """The result; or raises what the program said, or what became of it."""
        if pipes.broken is None and how.code >= 0 and self._signal is not None:
            raise self._signal
        if pipes.broken is None and how.code == 0:
            return self.result
        error = died(how, pipes.output.tail, pipes.broken, is_stopped=is_stopped)
        if self._is_soft and pipes.broken is None:
            raise HandlerError(
                "SoftTimeoutError", error.message, f"SoftTimeoutError: {error.message}", decide.TIMEOUT
            )
        raise error
