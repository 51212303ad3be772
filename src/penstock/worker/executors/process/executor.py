"""Handlers in processes: what a worker does around the execution of each job."""

import asyncio
import math
from functools import partial
from typing import Any, Final

from penstock.core import decide
from penstock.core.errors import HandlerError, PenstockError
from penstock.core.names import check_name
from penstock.core.payload import decode_json
from penstock.sandbox import paths
from penstock.tasks.call import Call as TaskCall
from penstock.tasks.context import JobContext
from penstock.tasks.signals import Cancel, Fail, Signal, Snooze
from penstock.tasks.task import Task
from penstock.worker.delivery import Delivery
from penstock.worker.endings import TracedRetry
from penstock.worker.executors.deaths import died
from penstock.worker.executors.process.host import Host
from penstock.worker.executors.process.kept import Gone, Kept
from penstock.worker.executors.process.pool import Pool
from penstock.worker.executors.process.wire import Answer, Ask, Done, Progress, Run, SpawnCall, Stop
from penstock.worker.executors.protocol import Call
from penstock.worker.executors.stopping import KILLED, StopDelays, stop

MAX_ASKS: Final = 16
"""Questions of one handler that may be open at once."""


class Processes:
    """The executor for `process`."""

    def __init__(self, host: Host, slots: int, delays: StopDelays) -> None:
        self._delays = delays
        self._host = host
        self._pool = Pool(host, slots)
        self._numbers = 0

    async def open(self) -> None:
        """Start the fork server, or share the one there is."""
        await self._host.open()

    def prepare(self, delivery: Delivery, task: Task[..., ..., Any], ctx: JobContext, /) -> Call:
        """The call; arguments are checked in the child, by the code that gets them."""
        return partial(self._call, delivery, task, ctx)

    async def close(self) -> None:
        """End the children."""
        await self._pool.close()
        await self._host.close()

    async def _call(self, delivery: Delivery, task: Task[..., ..., Any], ctx: JobContext) -> Any:
        await self._host.ready()
        permissions = task.execution.permissions
        # In a thread: a path may be on a file system that hangs.
        seen = None if permissions is None else await asyncio.to_thread(paths.seen, permissions)
        child = self._pool.take(task, seen)
        self._numbers += 1
        number = self._numbers
        talk = _Talk(child, task, ctx)
        done = child.begin(_run(number, delivery, task, ctx), talk.hear)
        outcome: Done | None = None
        try:
            try:
                await asyncio.wait([done])
            except asyncio.CancelledError:
                tell = partial(child.send, Stop(number))
                if not await stop(delivery, child.process, done, tell, self._delays):
                    raise
            found = done.result()
            if isinstance(found, Gone):
                raise died(found.how, child.output.tail, found.broken, is_stopped=delivery.stop is not None)
            outcome = found
            if outcome.has_left:
                # What a job started ends with it: the job has not ended before.
                child.kill()
                await asyncio.wait([child.process.exited], timeout=KILLED)
            delivery.saw_stop = delivery.saw_stop or outcome.saw_stop
            return _value(task, outcome)
        finally:
            talk.close()
            self._pool.give_back(child, task, outcome)


class _Talk:
    """What a handler says while it runs, and the answers it gets."""

    def __init__(self, child: Kept, task: Task[..., ..., Any], ctx: JobContext) -> None:
        self._child = child
        self._task = task
        self._ctx = ctx
        self._asks: set[asyncio.Task[None]] = set()

    def hear(self, message: Progress | Ask) -> None:
        """Take it in; PayloadError where it cannot be."""
        if isinstance(message, Progress):
            self._ctx.progress(decode_json("progress", message.value))
        elif len(self._asks) < MAX_ASKS:
            ask = asyncio.get_running_loop().create_task(self._answer(message))
            self._asks.add(ask)
            ask.add_done_callback(self._asks.discard)
        else:
            self._child.send(Answer(message.number, error="PenstockError", message="too many questions"))

    def close(self) -> None:
        """Nobody waits for answers any more."""
        for ask in self._asks:
            ask.cancel()

    async def _answer(self, message: Ask) -> None:
        try:
            if message.spawn is None:
                answer = Answer(message.number, children=await self._ctx.children())
            else:
                answer = Answer(message.number, ids=await self._spawn(message.spawn))
        except (PenstockError, Signal) as error:
            answer = Answer(message.number, error=type(error).__name__, message=str(error))
        self._child.send(answer)

    async def _spawn(self, wanted: list[SpawnCall]) -> list[str]:
        if self._task.execution.permissions is not None:
            raise PenstockError("a task with permissions spawns no jobs: those could do more than it may")
        calls = [
            TaskCall[Any](
                task=check_name("task", each.task),
                queue=check_name("queue", each.queue),
                payload=each.payload,
                options=each.options,
                decode=_nothing,
            )
            for each in wanted
        ]
        return [handle.id for handle in await self._ctx.spawn(*calls)]


def _value(task: Task[..., ..., Any], done: Done) -> Any:
    """What the handler returned, checked once more; or what it raised."""
    match done.kind:
        case "returned":
            return task.decode_result(done.result)
        case "raised":
            raise HandlerError(done.error, done.message, done.text)
        case "late":
            raise HandlerError(done.error, done.message, done.text, decide.TIMEOUT)
        case "invalid":
            raise HandlerError(done.error, done.message, done.text, decide.INVALID_PAYLOAD)
        case "retry":
            raise TracedRetry(done.after or 0, done.message, done.text)
        case "snooze":
            raise Snooze(math.inf if done.after is None else done.after)
        case "fail":
            raise Fail(done.reason)
        case "cancel":
            raise Cancel(done.reason)
        case _:
            raise HandlerError(
                "HandlerError", "the process told an unknown ending", done.kind, decide.PROTOCOL
            )


def _run(number: int, delivery: Delivery, task: Task[..., ..., Any], ctx: JobContext) -> Run:
    soft = task.execution.soft_timeout_ms
    return Run(
        number=number,
        id=ctx.id,
        queue=ctx.queue,
        tenant=ctx.tenant,
        worker=ctx.worker,
        attempt=ctx.attempt,
        max_attempts=ctx.max_attempts,
        delivery=ctx.delivery,
        drive=ctx.drive,
        fence=ctx.fence,
        priority=ctx.priority,
        key=ctx.key,
        enqueued_at=delivery.job.enqueued_at / 1000,
        deadline=ctx.deadline.timestamp(),
        headers=ctx.headers,
        soft=None if soft is None else soft / 1000,
        payload=delivery.job.payload,
    )


def _nothing(encoded: bytes | None) -> None:
    return None
