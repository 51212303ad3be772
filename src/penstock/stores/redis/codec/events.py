"""Events as the stream has them."""

from collections.abc import Sequence
from typing import Any, Final, Generic, TypeVar

import msgspec

from penstock.core.events import Event
from penstock.core.job import QueueRef
from penstock.core.moves import Move
from penstock.core.states import State
from penstock.stores.columns import columns
from penstock.stores.corruption import DECODE_ERRORS, event_error
from penstock.stores.redis.codec.values import Number, Text
from penstock.stores.values import EventColumns

MoveName = TypeVar("MoveName")
StateName = TypeVar("StateName")


class _PackedEvent(msgspec.Struct, Generic[MoveName, StateName], frozen=True, array_like=True, gc=False):
    """An event as scripts write it, cut after its last value. New fields come at the end."""

    v: int
    move: MoveName
    at: int
    job: Text = False
    version: Number = False
    drive: Number = False
    source: StateName | bool = False
    target: StateName | bool = False
    task: Text = False
    key: Text = False
    priority: Number = False
    max_attempts: Number = False
    delivery: Number = False
    attempt: Number = False
    fence: Number = False
    worker: Text = False
    deadline: Number = False
    visible_at: Number = False
    reason: Text = False
    error: Text = False
    fingerprint: Text = False
    idempotency_key: Text = False
    parent: Text = False
    schedule: Text = False
    instant: Number = False
    jobs: list[str] | bool = False


EVENT_FIELDS: Final = _PackedEvent.__struct_fields__
_read_event: Final = msgspec.msgpack.Decoder(_PackedEvent[Move, State]).decode
_read_loose: Final = msgspec.msgpack.Decoder(_PackedEvent[str, str]).decode
"""Also with moves and states of later versions."""


def event_of(queue: QueueRef, seq: int, packed: bytes) -> Event:
    """An event out of the stream."""
    try:
        read = _read_event(packed)
    except DECODE_ERRORS as error:
        raise event_error(queue, seq, error) from None
    fields = {name: value for name in EVENT_FIELDS if (value := getattr(read, name)) is not False}
    return Event(tenant=queue.tenant, queue=queue.name, seq=seq, **fields)


Entry = tuple[bytes, Sequence[bytes]]
"""The id of an entry of a stream, and its names and values in turn."""


def columns_of(entries: Sequence[Entry]) -> EventColumns:
    """Events of the stream field by field."""
    broken: dict[int, str] = {}
    try:
        rows = [_row(*entry) for entry in entries]
    except (ValueError, msgspec.DecodeError):
        rows = [_row_or_problem(at, entry, broken) for at, entry in enumerate(entries)]
    unknown = {
        at: {str(place): each for place, each in enumerate(later, len(EVENT_FIELDS) + 1)}
        for at, (_, fields) in enumerate(entries)
        if at not in broken and (later := _later(fields[1]))
    }
    found = columns(("seq", *EVENT_FIELDS), rows)
    fields: dict[str, Sequence[Any]] = {}
    for name, values in found.items():
        kinds = set(map(type, values))
        if kinds != {bool}:
            fields[name] = [None if each is False else each for each in values] if bool in kinds else values
    return EventColumns(len(rows), fields, unknown=unknown, broken=broken)


def _row(number: bytes, fields: Sequence[bytes]) -> tuple[Any, ...]:
    _, packed = fields
    if not number.endswith(b"-0"):
        raise ValueError("it has a second number")
    return int(number[:-2]), *msgspec.structs.astuple(_read_loose(packed))


def _row_or_problem(at: int, entry: Entry, broken: dict[int, str]) -> tuple[Any, ...]:
    try:
        return _row(*entry)
    except (ValueError, msgspec.DecodeError) as error:
        broken[at] = f"entry {entry[0].decode()} of the stream is no event: {error}"
        return int(entry[0].partition(b"-")[0]), *(False,) * len(EVENT_FIELDS)


def _later(packed: bytes) -> Sequence[Any]:
    """Fields of later versions. Arrays of more than 15 have their length in two bytes, or in four."""
    head = packed[0]
    if head < _LONG or int.from_bytes(packed[1 : 3 if head == _LONG else 5]) <= len(EVENT_FIELDS):
        return ()
    later: list[Any] = msgspec.msgpack.decode(packed)[len(EVENT_FIELDS) :]
    return later


_LONG: Final = 0xDC
