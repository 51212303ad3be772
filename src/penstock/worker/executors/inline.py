"""Async handlers: in the worker's own event loop."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any


def call_inline(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Awaitable[Any]:
    """The handler's coroutine; whoever awaits it runs it."""
    coroutine: Awaitable[Any] = function(*args, **kwargs)
    return coroutine
