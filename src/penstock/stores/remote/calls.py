"""Calls made from the protocol: each that a part does not write by hand is one message to the service."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

from penstock.stores.remote.backend import Backend
from penstock.stores.wire import CALLS, METHODS, Call


def completed(part: object, name: str, backend: Backend) -> Any:
    """The part with all calls that the protocol's part of this name has."""
    for call in CALLS.values():
        if call.part == name and not hasattr(part, call.name):
            setattr(part, call.name, _sender(call, backend))
    return part


def _sender(call: Call, backend: Backend) -> Callable[..., Any]:
    """The call as a function, with the arguments that it has in the protocol."""
    method = METHODS[call.name]
    names = list(inspect.signature(method).parameters)[1:]
    # What a call is about stands first, and travels beside its arguments.
    has_subject = call.scope != "store" and names[0] in ("queue", "tenant")
    rest = names[1:] if has_subject else names

    @functools.wraps(method)
    async def send(*args: Any, **arguments: Any) -> Any:
        subject = None
        if has_subject:
            if names[0] in arguments:
                subject = arguments.pop(names[0])
            else:
                subject, *args = args  # type: ignore[assignment]  # a list from here on
        if len(args) > len(rest):
            raise TypeError(f"{call.name} takes {len(names)} arguments")
        arguments |= zip(rest, args, strict=False)
        return await backend.call(call.name, subject, **arguments)

    return send
