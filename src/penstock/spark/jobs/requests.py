"""From the options and the query's own filters to the request of a scan."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

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

from penstock.core.states import State
from penstock.spark.options import SourceOptions
from penstock.spark.schemas import JOBS
from penstock.stores.scan_request import COLUMNS_IN_MORE, Condition, Op, ScanRequest

_PUSHED: Final = (
    frozenset(JOBS.names) - COLUMNS_IN_MORE - {"options", "payload", "result", "progress", "error"}
)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def request_of(options: SourceOptions, table: str) -> ScanRequest:
    """What the options ask for. `since` and `until` are about the enqueue; of dead letters about the end."""
    states = frozenset({State.DEAD}) if table == "dlq" else options.states
    age = "ended_at" if table == "dlq" else "enqueued_at"
    conditions = []
    if states:
        conditions.append(Condition("state", Op.IN, tuple(sorted(map(str, states)))))
    if options.tasks:
        conditions.append(Condition("task", Op.IN, options.tasks))
    if options.since is not None:
        conditions.append(Condition(age, Op.GE, (options.since,)))
    if options.until is not None:
        conditions.append(Condition(age, Op.LE, (options.until - 1,)))
    return ScanRequest(table, options.columns or tuple(JOBS.names), tuple(conditions))


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
            return _limit(column, Op.GE, value, 0)
        case GreaterThan(attribute=(column,), value=value):
            return _limit(column, Op.GE, value, 1)
        case LessThanOrEqual(attribute=(column,), value=value):
            return _limit(column, Op.LE, value, 0)
        case LessThan(attribute=(column,), value=value):
            return _limit(column, Op.LE, value, -1)
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
        return Condition(column, op, (-(-micros // 1000) if op is Op.GE else micros // 1000,))
    # Servers may order text otherwise than Spark does.
    return Condition(column, op, (int(value) + beyond,)) if pa.types.is_integer(kind) else None


def _micros(value: datetime) -> int:
    return (value - _EPOCH) // timedelta(microseconds=1)
