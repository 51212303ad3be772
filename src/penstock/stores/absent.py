"""Calls on a queue that is not there: what each answers, so that only calls which need a queue make one.

A queue that was deleted would otherwise come back with the next look of a worker or a scheduler.
"""

import functools
import inspect
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, ParamSpec, TypeVar

from penstock.core.outcomes import Claims, Refusal, Refused

P = ParamSpec("P")
T = TypeVar("T")
_LOST: Final = Refused(Refusal.LOST)
_MISSING: Final = Refused(Refusal.MISSING)


class QueueAbsentError(Exception):
    """There is no such queue. Raised and caught within a store; callers get the answer of `ANSWERS`."""


def _each(name: str, answer: Refused) -> Callable[[Mapping[str, Any]], Any]:
    return lambda arguments: [answer] * len(arguments[name])


def _always(answer: Any) -> Callable[[Mapping[str, Any]], Any]:
    return lambda _: answer


ANSWERS: Final[Mapping[str, Callable[[Mapping[str, Any]], Any]]] = {
    "claim": lambda _: Claims(),
    "heartbeat": _each("beats", _LOST),
    "progress": _each("reports", _LOST),
    "settle": _each("settlements", _LOST),
    "expire": _each("expiries", _LOST),
    "spawn": _always(_LOST),
    "cancel": _each("ids", _MISSING),
    "redrive": _each("ids", _MISSING),
    "delete": _each("ids", _MISSING),
    "child_ended": _each("endings", _MISSING),
    "adopt": _each("adoptions", _MISSING),
    "key_holders": lambda arguments: [None] * len(arguments["keys"]),
    "promote": _always(0),
    "prune": _always(0),
    "delete_quarantined": _always(0),
    "repair": _always(0),
    "trim": _always(0),
    "remove_expired_readers": _always(0),
    "delete_relay_entries": _always(None),
    "list_relay_entries": lambda _: [],
    "expired": lambda _: [],
    "list_keys": lambda _: [],
    "list_readers": lambda _: [],
    "list_quarantined": lambda _: [],
    "damaged_events": lambda _: [],
    "due_schedules": lambda _: [],
    "fire": _always(False),
    "remove_schedule": _always(False),
    "pause_schedule": _always(False),
    "unregister_reader": _always(False),
}
"""The calls of a store's protocol that make no queue, with what each answers where there is none.

Each gets the arguments of the call by name."""


def answers_absent(method: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Let a store's method raise QueueAbsentError, and answer as `ANSWERS` says where it does."""
    answer, signature = ANSWERS[method.__name__], inspect.signature(method)

    @functools.wraps(method)
    async def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return await method(*args, **kwargs)
        except QueueAbsentError:
            found: T = answer(signature.bind(*args, **kwargs).arguments)
            return found

    return call
