"""From Arrow columns to values that have a form in JSON, and the rows where there is none."""

import math
from collections.abc import Iterator
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.payload import member

UTC: Final = "UTC"
encode: Final = msgspec.json.Encoder(order="deterministic").encode
"""Objects in the order of their names: the same row gives the same bytes, whatever made it."""


_WRONG_TEXT: Final = "found bytes, wanted text in UTF-8"
_WRONG_TIME: Final = "found a time out of range, wanted the years 1 to 9999"


class Flaw(msgspec.Struct, frozen=True):
    """Why a row cannot be a job: the column, or the place in it, and what was wrong."""

    field: str
    reason: str


Flaws = dict[int, Flaw]
"""The first flaw of each bad row, by its place in the batch."""


def values_of(name: str, column: pa.Array, flaws: Flaws) -> list[Any]:
    """The values of a column; None where there is none, and where a flaw was noted."""
    column = _in_utc(column)
    try:
        values = _listed(column)
    except (ValueError, OverflowError, KeyError, pa.ArrowException):
        values = [_single(name, column, at, flaws) for at in range(len(column))]
    if _may_be_infinite(column):
        for at, value in enumerate(values):
            path = _infinite(name, value)
            if path is not None:
                flaws.setdefault(at, Flaw(path, f"{path}: found no finite number, wanted one"))
                values[at] = None
    return values


def with_one_zero(values: list[Any], column: pa.Array) -> list[Any]:
    """The values of a column that tells rows apart: 0.0 and -0.0 are equal to Spark, and one key."""
    has_floats = next(_floats(column), None) is not None
    return [_one_zero(value) for value in values] if has_floats else values


def _one_zero(value: Any) -> Any:
    match value:
        case float():
            # The sum of -0.0 and 0.0 is 0.0.
            return value + 0.0
        case list():
            return [_one_zero(each) for each in value]
        case dict():
            return {name: _one_zero(each) for name, each in value.items()}
    return value


def shown(name: str, column: pa.Array, at: int) -> Any:
    """A value for people to look at, also where it has no form in JSON."""
    flaws: Flaws = {}
    (value,) = values_of(name, column.slice(at, 1), flaws)
    if not flaws:
        return value
    scalar = column[at]
    if _is_text(scalar.type):
        return scalar.as_buffer().to_pybytes().decode(errors="replace")
    if pa.types.is_timestamp(scalar.type) or pa.types.is_date(scalar.type):
        return str(scalar.value)
    try:
        return str(scalar.as_py())
    except (ValueError, OverflowError, KeyError):
        return f"a {scalar.type} that cannot be shown"


def _listed(column: pa.Array) -> list[Any]:
    kind = column.type
    # Most columns are of these, and numpy has them far sooner than Arrow.
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
    if _is_text(kind) or (is_number and not column.null_count):
        plain: list[Any] = column.to_numpy(zero_copy_only=False).tolist()
        return plain
    values: list[Any] = column.to_pylist(maps_as_pydicts="strict")
    return values


def _single(name: str, column: pa.Array, at: int, flaws: Flaws) -> Any:
    try:
        return _listed(column.slice(at, 1))[0]
    except KeyError:
        reason = "found a key twice, wanted each key of a map once"
    except (ValueError, OverflowError, pa.ArrowException) as error:
        is_text = isinstance(error, UnicodeDecodeError) or _is_text(column.type)
        reason = _WRONG_TEXT if is_text else _WRONG_TIME
    flaws.setdefault(at, Flaw(name, f"{name}: {reason}"))
    return None


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _in_utc(column: pa.Array) -> pa.Array:
    kind = _utc_type(column.type)
    return column if kind is column.type or kind == column.type else column.cast(kind)


def _utc_type(kind: pa.DataType) -> pa.DataType:
    """The type with its times in UTC."""
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", UTC) if kind.tz is not None and kind.tz != UTC else kind
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_utc_type(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_utc_type(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(kind.key_field, kind.item_field.with_type(_utc_type(kind.item_type)))
    return kind


def _may_be_infinite(column: pa.Array) -> bool:
    """True when some number in the column, at any depth, may not be finite."""
    return any(pc.all(pc.is_finite(each)).as_py() is False for each in _floats(column))


def _floats(column: pa.Array) -> Iterator[pa.Array]:
    kind = column.type
    if pa.types.is_floating(kind):
        yield column
    elif pa.types.is_struct(kind):
        for each in column.flatten():
            yield from _floats(each)
    elif pa.types.is_map(kind):
        yield from _floats(column.items)
    elif pa.types.is_list(kind):
        yield from _floats(column.flatten())


def _infinite(path: str, value: Any) -> str | None:
    """The place of the first number that is not finite."""
    if isinstance(value, float):
        return None if math.isfinite(value) else path
    items: Iterator[tuple[str, Any]] = iter(())
    if isinstance(value, dict):
        items = ((member(path, str(key)), each) for key, each in value.items())
    elif isinstance(value, list):
        items = ((f"{path}[{index}]", each) for index, each in enumerate(value))
    return next((found for place, each in items if (found := _infinite(place, each)) is not None), None)
