"""The seam between a worker and the places where handlers run."""

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from penstock.tasks.context import JobContext
from penstock.tasks.task import Task
from penstock.worker.delivery import Delivery

Call = Callable[[], Awaitable[Any]]


class Executor(Protocol):
    """Runs the handlers of one tier.

    Cancelling the call tells the handler to stop, for the reason that the delivery names; a call that was
    cancelled ends in bounded time, except in threads.
    """

    async def open(self) -> None:
        """Be ready for calls; ConfigError where that cannot be."""
        ...

    def prepare(self, delivery: Delivery, task: Task[..., ..., Any], ctx: JobContext, /) -> Call:
        """The call of the handler, not begun; PayloadError if its arguments are found not to fit."""
        ...

    async def close(self) -> None:
        """End what is left, and let all go."""
        ...
