"""Numbers of queues that a store remembers, and what happens when a queue was deleted since."""

import functools
from collections.abc import Callable, Coroutine
from typing import Any, Final, ParamSpec, TypeVar

from penstock.core.errors import StoreUnavailableError

P = ParamSpec("P")
T = TypeVar("T")
_TRIES: Final = 20


class StaleNumberError(Exception):
    """The queue of a number that was remembered is gone, and the number forgotten. Never leaves the store."""


def renumbers(method: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Call a method again where it raises StaleNumberError: it may, before it has changed anything."""

    @functools.wraps(method)
    async def call(*args: P.args, **kwargs: P.kwargs) -> T:
        for _ in range(_TRIES):
            try:
                return await method(*args, **kwargs)
            except StaleNumberError:
                continue
        raise StoreUnavailableError("the queue was deleted and made anew again and again")

    return call
