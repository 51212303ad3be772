"""The fields of an event, and an event of the form before: an entry of the log of its own."""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from penstock.stores.redis.codec.values import Number, Text


class _PackedEvent(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An event as scripts write it, cut after its last value. New fields come at the end."""

    v: int
    move: str
    at: int
    job: Text = False
    version: Number = False
    drive: Number = False
    source: Text = False
    target: Text = False
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
_read: Final = msgspec.msgpack.Decoder(_PackedEvent).decode
"""Also with moves and states of later versions."""


def read_single(packed: bytes) -> list[Any]:
    """The values of an event, those of later versions included; false is None."""
    values = list(msgspec.structs.astuple(_read(packed)))
    # Arrays of more than 15 have their length in two bytes, or in four.
    head = packed[0]
    if head >= _LONG and int.from_bytes(packed[1 : 3 if head == _LONG else 5]) > len(EVENT_FIELDS):
        later: Sequence[Any] = msgspec.msgpack.decode(packed)[len(EVENT_FIELDS) :]
        values += later
    return values


_LONG: Final = 0xDC
