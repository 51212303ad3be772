"""Executions inside what an app wraps around them."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from penstock.tasks.context import JobContext
from penstock.tasks.middleware import ExecutionMiddleware

CallNext = Callable[[], Awaitable[Any]]


def wrapped(middleware: Sequence[ExecutionMiddleware], ctx: JobContext, innermost: CallNext) -> CallNext:
    """A call through all of them, the first one outermost."""
    call = innermost
    for each in reversed(middleware):
        call = _around(each, ctx, call)
    return call


def _around(middleware: ExecutionMiddleware, ctx: JobContext, call_next: CallNext) -> CallNext:
    def call() -> Awaitable[Any]:
        return middleware(ctx, call_next)

    return call
