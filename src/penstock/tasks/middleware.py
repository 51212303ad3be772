"""What an app can wrap around every enqueue and every execution."""

from collections.abc import Awaitable, Callable
from typing import Any

from penstock.core.job import NewJob, QueueRef
from penstock.core.outcomes import Enqueued, Refused
from penstock.tasks.context import JobContext

SendNext = Callable[[NewJob], Awaitable[Enqueued | Refused]]
EnqueueMiddleware = Callable[[NewJob, QueueRef, SendNext], Awaitable[Enqueued | Refused]]
"""`async (new, queue, call_next)`: may change the job before `call_next(new)`, or raise instead of it."""

ExecutionMiddleware = Callable[[JobContext, Callable[[], Awaitable[Any]]], Awaitable[Any]]
"""`async (ctx, call_next)`: around the handler; returns the result, its own or that of `call_next()`."""
