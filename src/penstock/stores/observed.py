"""The seam at which a store is observed: its parts are wrapped, so that each call is timed and told.

A store that nobody observes has no wrapper, and costs nothing.
"""

import inspect
import time
from functools import cache
from typing import Any, Final, Protocol, cast

from penstock.stores import protocol
from penstock.stores.protocol import Store

PARTS: Final[dict[str, type]] = {
    "moves": protocol.Moves,
    "flows": protocol.Flows,
    "schedules": protocol.Schedules,
    "reads": protocol.Reads,
    "upkeep": protocol.UpkeepReads,
    "queues": protocol.Queues,
    "key_value": protocol.KeyValue,
    "workers": protocol.Workers,
    "events": protocol.EventLog,
    "readers": protocol.Readers,
    "rollups": protocol.Rollups,
    "quarantine": protocol.Quarantine,
    "health": protocol.Health,
}
"""The parts that are observed, by their names. The notifier only waits, and the clock only tells the time."""


class StoreObserver(Protocol):
    """Told of every call of a store. It runs within the call: it must be quick, and may not raise."""

    def answered(self, part: str, call: str, seconds: float, args: tuple[Any, ...], answer: Any) -> None:
        """A call was answered; `args` are its positional arguments, mostly the queue first."""
        ...

    def failed(self, part: str, call: str, seconds: float, error: BaseException) -> None:
        """A call raised."""
        ...


class ObservedPart:
    """A part whose calls are told to an observer; all else is forwarded."""

    def __init__(self, real: Any, observer: StoreObserver) -> None:
        self._real = real
        self._observer = observer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


def observe(store: Store, observer: StoreObserver) -> Store:
    """The store itself, its calls told to the observer from now on, as are those of its clones.

    Nothing happens where it is told of them already. To be called before anything takes a part of the store:
    that keeps the part it has.
    """
    if _is_observed(store, observer):
        return store
    for part in PARTS:
        setattr(store, part, _wrapper(part)(getattr(store, part), observer))
    clone = store.clone

    def observed_clone() -> Store:
        made = clone()
        return made if made is store else observe(made, observer)

    cast(Any, store).clone = observed_clone
    return store


def _is_observed(store: Store, observer: StoreObserver) -> bool:
    part: Any = store.moves
    while isinstance(part, ObservedPart):
        if part._observer is observer:
            return True
        part = part._real
    return False


@cache
def _wrapper(part: str) -> type[ObservedPart]:
    calls = [name for name, call in vars(PARTS[part]).items() if inspect.iscoroutinefunction(call)]
    return type(f"Observed_{part}", (ObservedPart,), {name: _observed_call(part, name) for name in calls})


def _observed_call(part: str, name: str) -> Any:
    clock = time.perf_counter

    async def call(self: ObservedPart, *args: Any, **named: Any) -> Any:
        began = clock()
        try:
            answer = await getattr(self._real, name)(*args, **named)
        except BaseException as error:
            self._observer.failed(part, name, clock() - began, error)
            raise
        self._observer.answered(part, name, clock() - began, args, answer)
        return answer

    call.__name__ = name
    return call
