"""Which jobs a scan of a store reads, and which of their columns: the same for every store."""

from collections.abc import Iterable
from enum import StrEnum
from typing import Final

import msgspec

from penstock.core.job import QueueRef
from penstock.core.states import State

Value = str | int | bool

COLUMNS_OF_QUEUES: Final = frozenset({"tenant", "queue"})
COLUMNS_IN_MORE: Final = frozenset({"schedule", "instant", "parents", "headers"})
_encode: Final = msgspec.json.Encoder(order="sorted").encode


class Op(StrEnum):
    """How a column is compared."""

    IN = "in"
    GE = ">="
    LE = "<="
    NULL = "null"
    NOT_NULL = "not null"


class Condition(msgspec.Struct, frozen=True):
    """A column compared with values; times are milliseconds."""

    column: str
    op: Op
    values: tuple[Value, ...] = ()

    def holds(self, value: Value | None) -> bool:
        """True for a row that has this value."""
        if self.op is Op.NULL:
            return value is None
        if value is None or self.op is Op.NOT_NULL:
            return value is not None
        if self.op is Op.IN:
            return value in self.values
        limit = self.values[0]
        return value >= limit if self.op is Op.GE else value <= limit  # type: ignore[operator]


class ScanRequest(msgspec.Struct, frozen=True):
    """Rows for which every condition holds, and the columns of them. `table` is jobs or dlq."""

    table: str
    columns: tuple[str, ...]
    conditions: tuple[Condition, ...] = ()

    @property
    def states(self) -> frozenset[State]:
        """The states that a row may have; all where nothing is said."""
        found = frozenset(State)
        for each in self.conditions:
            if each.column == "state" and each.op is Op.IN:
                found &= {State(value) for value in each.values if value in set(State)}
        return found

    def has(self, queue: QueueRef) -> bool:
        """False where no row of the queue can be wanted."""
        named = {"tenant": queue.tenant, "queue": queue.name}
        return all(each.holds(named[each.column]) for each in self.conditions if each.column in named)

    def and_also(self, conditions: Iterable[Condition]) -> "ScanRequest":
        """With more conditions."""
        return msgspec.structs.replace(self, conditions=(*self.conditions, *conditions))


def headers_text(headers: dict[str, str] | None) -> str | None:
    """Headers as a column: JSON in the order of their names, the same of every store."""
    return _encode(headers).decode() if headers else None
