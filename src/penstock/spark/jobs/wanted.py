"""Which rows are wanted: what the options and the query's own filters say, in the store's terms."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
)

from penstock.core.job import QueueRef
from penstock.core.states import State
from penstock.spark.options import SourceOptions
from penstock.spark.schemas import JOBS

Value = str | int | bool

COLUMNS_OF_QUEUES: Final = frozenset({"tenant", "queue"})
COLUMNS_IN_MORE: Final = frozenset({"schedule", "instant", "parents"})
_PUSHED: Final = (
    frozenset(JOBS.names) - COLUMNS_IN_MORE - {"options", "payload", "result", "progress", "error"}
)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Op(StrEnum):
    """How a column is compared."""

    IN = "in"
    LEAST = ">="
    MOST = "<="
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
        return value >= limit if self.op is Op.LEAST else value <= limit  # type: ignore[operator]


class Wanted(msgspec.Struct, frozen=True):
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

    def and_also(self, conditions: Iterable[Condition]) -> "Wanted":
        """With more conditions."""
        return msgspec.structs.replace(self, conditions=(*self.conditions, *conditions))


def wanted_of(options: SourceOptions, table: str) -> Wanted:
    """What the options ask for. `since` and `until` are about the enqueue; of dead letters about the end."""
    states = frozenset({State.DEAD}) if table == "dlq" else options.states
    age = "ended_at" if table == "dlq" else "enqueued_at"
    conditions = []
    if states:
        conditions.append(Condition("state", Op.IN, tuple(sorted(map(str, states)))))
    if options.tasks:
        conditions.append(Condition("task", Op.IN, options.tasks))
    if options.since is not None:
        conditions.append(Condition(age, Op.LEAST, (options.since,)))
    if options.until is not None:
        conditions.append(Condition(age, Op.MOST, (options.until - 1,)))
    return Wanted(table, options.columns or tuple(JOBS.names), tuple(conditions))


def conditions_of(filters: Iterable[Filter]) -> list[Condition]:
    """Of a query's filters those that a store can look at. Spark still applies all of them."""
    return [found for each in filters if (found := _condition(each)) is not None]


def _condition(asked: Filter) -> Condition | None:
    match asked:
        case IsNull(attribute=(column,)) if column in _PUSHED:
            return Condition(column, Op.NULL)
        case IsNotNull(attribute=(column,)) if column in _PUSHED:
            return Condition(column, Op.NOT_NULL)
        case EqualTo(attribute=(column,), value=value) | EqualNullSafe(attribute=(column,), value=value):
            return _one_of(column, [value])
        case In(attribute=(column,), value=values):
            return _one_of(column, values)
        case GreaterThanOrEqual(attribute=(column,), value=value):
            return _limit(column, Op.LEAST, value, 0)
        case GreaterThan(attribute=(column,), value=value):
            return _limit(column, Op.LEAST, value, 1)
        case LessThanOrEqual(attribute=(column,), value=value):
            return _limit(column, Op.MOST, value, 0)
        case LessThan(attribute=(column,), value=value):
            return _limit(column, Op.MOST, value, -1)
    return None


def _one_of(column: str, values: Sequence[Any]) -> Condition | None:
    # Null equals nothing: a query's own null is not for the store to find.
    if column not in _PUSHED or not values or any(value is None for value in values):
        return None
    if pa.types.is_timestamp(JOBS.field(column).type):
        micros = [_micros(value) for value in values]
        return Condition(column, Op.IN, tuple(each // 1000 for each in micros if each % 1000 == 0) or (-1,))
    return Condition(column, Op.IN, tuple(values))


def _limit(column: str, op: Op, value: Any, beyond: int) -> Condition | None:
    """`beyond` is 1 or -1 where the value itself is no longer meant."""
    kind = JOBS.field(column).type if column in _PUSHED else None
    if kind is None or value is None:
        return None
    if pa.types.is_timestamp(kind):
        # Stores keep milliseconds: the next whole one that is meant.
        micros = _micros(value) + beyond
        return Condition(column, op, (-(-micros // 1000) if op is Op.LEAST else micros // 1000,))
    # Servers may order text otherwise than Spark does.
    return Condition(column, op, (int(value) + beyond,)) if pa.types.is_integer(kind) else None


def _micros(value: datetime) -> int:
    return (value - _EPOCH) // timedelta(microseconds=1)
