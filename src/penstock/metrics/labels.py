"""A bounded number of tenants, queues and tasks with values of their own; the rest is counted as `other`."""

from collections.abc import Callable
from typing import Final, Generic, TypeVar

from penstock.core.job import QueueRef
from penstock.metrics.families import OTHER

T = TypeVar("T")
MOST_QUEUES: Final = 500
"""Queues of a process, of all tenants, with values of their own."""
MOST_TASKS: Final = 50
"""Tasks of a queue with values of their own."""
MOST_SERIES: Final = 2_000
"""Tasks of all queues with values of their own."""
_OTHERS: Final = QueueRef(OTHER, OTHER)


class BoundedQueues(Generic[T]):
    """A value for each queue up to a bound, and one for all others together."""

    def __init__(self, make: Callable[[QueueRef], T], most: int = MOST_QUEUES) -> None:
        self._make = make
        self._most = most
        self._values: dict[QueueRef, T] = {}
        self._others: T | None = None
        self._newest: tuple[QueueRef, T] | None = None

    def of(self, queue: QueueRef) -> T:
        """The value of a queue, made when it is first asked for."""
        newest = self._newest
        if newest is not None and newest[0] is queue:
            # A worker names the same object each time: hashing it would be felt.
            return newest[1]
        known = self._values.get(queue)
        if known is not None:
            self._newest = queue, known
            return known
        if len(self._values) < self._most:
            return self._values.setdefault(queue, self._make(queue))
        if self._others is None:
            self._others = self._make(_OTHERS)
        return self._others

    def all(self) -> list[T]:
        """The values there are. From any thread."""
        others = [] if self._others is None else [self._others]
        return [*self._values.copy().values(), *others]
