"""Stores of which a test replaces some calls, and leaves all others as they are."""

from types import SimpleNamespace
from typing import Any, Final, cast

from penstock.stores.memory import MemoryStore
from penstock.stores.protocol import Store

PARTS: Final = (
    "moves",
    "flows",
    "schedules",
    "reads",
    "upkeep",
    "queues",
    "key_value",
    "workers",
    "events",
    "readers",
    "notifier",
    "clock",
    "quarantine",
    "health",
)
"""The parts of every store by their names."""
_OfAnyType: Any = object


class Part(_OfAnyType):  # type: ignore[misc]  # it takes the place of any part, whatever its type
    """A part of a store that forwards to the real one, except for the calls that replace its own.

    `store.moves = Part(store.moves, claim=claim)`, or a subclass with the methods that differ and `real`.
    """

    def __init__(self, real: Any, **calls: Any) -> None:
        self.real = real
        self.__dict__.update(calls)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)


class InterceptedStore(MemoryStore):
    """A memory store whose subclass replaces calls of its parts: by methods of the calls' names.

    The replaced calls are at `self.real`, by part: `await self.real.moves.claim(...)`.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.real = cast(Store, SimpleNamespace(**{name: getattr(self, name) for name in PARTS}))
        for name, part in vars(self.real).items():
            calls = {call: getattr(self, call) for call in self._replaced() if hasattr(part, call)}
            if calls:
                setattr(self, name, Part(part, **calls))

    @classmethod
    def _replaced(cls) -> set[str]:
        own = cls.__mro__[: cls.__mro__.index(InterceptedStore)]
        return {name for kind in own for name, found in vars(kind).items() if callable(found)}
