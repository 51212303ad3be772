"""How a side enqueues, in the form the roles use it."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class AsyncCalls:
    """A side made for coroutines: a no-op job, many of them by the best way it has, a stamped job."""

    noop: Callable[[int], Awaitable[Any]]
    many: Callable[[Sequence[int]], Awaitable[Any]]
    stamped: Callable[[int], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class ThreadCalls:
    """The same of a side made for threads."""

    noop: Callable[[int], Any]
    many: Callable[[Sequence[int]], Any]
    stamped: Callable[[int], Any]
