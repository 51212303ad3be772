"""From the columns of a store to those of the table `events`."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec
import pyarrow as pa

from penstock.core.events import EVENT_VERSION
from penstock.core.job import QueueRef
from penstock.stores.values import EventColumns

GAP: Final = "gap"
"""The move of a row that stands for events which are not there any longer."""
_NAMES: Final = {"from_state": "source", "to_state": "target"}
_UNFIT: Final = (pa.ArrowException, OverflowError, UnicodeError)
_MILLISECONDS: Final = pa.timestamp("ms", tz="UTC")


def batch_of(queue: QueueRef, found: EventColumns, schema: pa.Schema) -> pa.RecordBatch:
    """One row per event. What does not fit its column stands in `extra`, and `problem` says so."""
    cursors = found.cursors(queue) if "cursor" in schema.names else []
    try:
        return _batch(queue, found, cursors, schema)
    except _UNFIT:
        return _batch(queue, _fitting(found, schema), cursors, schema)


def gap_of(queue: QueueRef, first: int, last: int, why: str, schema: pa.Schema) -> pa.RecordBatch:
    """The row that stands for events that were not read."""
    said = {
        "tenant": queue.tenant,
        "queue": queue.name,
        "seq": first,
        "cursor": str(last),
        "v": EVENT_VERSION,
        "move": GAP,
        "problem": f"events {first} to {last} {why}",
    }
    return pa.RecordBatch.from_pylist([{name: said.get(name) for name in schema.names}], schema=schema)


def _batch(queue: QueueRef, found: EventColumns, cursors: Sequence[str], schema: pa.Schema) -> pa.RecordBatch:
    made: dict[str, Callable[[], Any]] = {
        "tenant": lambda: pa.repeat(pa.scalar(queue.tenant), found.count),
        "queue": lambda: pa.repeat(pa.scalar(queue.name), found.count),
        "cursor": lambda: pa.array(cursors, pa.string()),
        "extra": lambda: _sparse(found.count, {at: _json(each) for at, each in found.unknown.items()}),
        "problem": lambda: _sparse(found.count, found.broken),
    }
    arrays = [
        made[field.name]()
        if field.name in made
        else _array(found.fields.get(_NAMES.get(field.name, field.name)), found.count, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _array(values: Sequence[Any] | None, count: int, kind: pa.DataType) -> pa.Array:
    if values is None:
        return pa.nulls(count, kind)
    if pa.types.is_timestamp(kind):
        return pa.array(values, _MILLISECONDS).cast(kind)
    return pa.array(values, kind)


def _sparse(count: int, values: Mapping[int, str]) -> pa.Array:
    return _array([values.get(at) for at in range(count)] if values else None, count, pa.string())


def _json(values: Any) -> str:
    return msgspec.json.encode(values, enc_hook=str, order="sorted").decode()


def _fitting(found: EventColumns, schema: pa.Schema) -> EventColumns:
    """The same with what does not fit put aside."""
    fields = dict(found.fields)
    unknown = {at: dict(values) for at, values in found.unknown.items()}
    broken = dict(found.broken)
    for field in schema:
        name = _NAMES.get(field.name, field.name)
        kept: list[Any] = []
        for at, value in enumerate(fields.get(name, ())):
            if _fits(value, field.type):
                kept.append(value)
                continue
            kept.append(None)
            unknown.setdefault(at, {})[name] = value
            broken[at] = "; ".join(
                filter(None, (broken.get(at), f"{field.name} is no {field.type}: see extra"))
            )
        if kept:
            fields[name] = kept
    return EventColumns(found.count, fields, found.stamps, unknown, broken, found.ends)


def _fits(value: object, kind: pa.DataType) -> bool:
    try:
        _array((value,), 1, kind)
    except _UNFIT:
        return False
    return True
