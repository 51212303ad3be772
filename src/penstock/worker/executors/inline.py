"""Handlers in the worker itself: coroutine functions in its event loop, plain functions in threads."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from penstock.core.errors import SoftTimeoutError
from penstock.tasks.context import JobContext
from penstock.tasks.task import Task
from penstock.worker.delivery import Delivery, Stop
from penstock.worker.executors.protocol import Call
from penstock.worker.executors.thread import Threads


class Inline:
    """The executor that is used where nothing is said."""

    def __init__(self, name: str) -> None:
        self._threads = Threads(name)

    async def open(self) -> None:
        """There is nothing to open."""

    def prepare(self, delivery: Delivery, task: Task[..., ..., Any], ctx: JobContext, /) -> Call:
        """The call of the handler with its arguments, checked."""
        args, kwargs = task.bind(delivery.job.payload, ctx)
        soft = task.execution.soft_timeout_ms
        if soft is not None:
            call = _cancelled_after if task.is_async else self._told_after
            return partial(call, soft / 1000, delivery, task.function, args, kwargs)
        if task.is_async:
            return partial(task.function, *args, **kwargs)
        return partial(self._threads.call, task.function, args, kwargs)

    async def close(self) -> None:
        """Let the threads go."""
        self._threads.close()

    async def _told_after(
        self,
        soft: float,
        delivery: Delivery,
        function: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
    ) -> Any:
        """In a thread nothing can be raised from outside: its context says so."""
        timer = asyncio.get_running_loop().call_later(soft, delivery.end_soft_limit)
        try:
            return await self._threads.call(function, args, kwargs)
        finally:
            timer.cancel()


async def _cancelled_after(
    soft: float,
    delivery: Delivery,
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> Any:
    """The handler sees its cancel; whoever asks what became of it, a soft limit."""
    timer = asyncio.timeout(soft)
    try:
        async with timer:
            return await function(*args, **kwargs)
    except TimeoutError:
        if not timer.expired() or delivery.stop is Stop.TIMEOUT:
            raise
        raise SoftTimeoutError(f"the execution took longer than {soft:g} s, its soft limit") from None
