"""Schedules as scripts keep them: a packed part that they read, and a body that they do not."""

from collections.abc import Mapping
from typing import Final

import msgspec

from penstock.core.job import QueueRef
from penstock.stores.corruption import DECODE_ERRORS
from penstock.stores.values import StoredSchedule


class _PackedSchedule(msgspec.Struct, frozen=True, array_like=True):
    """The part of a schedule that scripts read and write."""

    next_at: int | bool
    last_at: int | bool
    paused: bool


SCHEDULE_FIELDS: Final = _PackedSchedule.__struct_fields__
_read_schedule: Final = msgspec.msgpack.Decoder(_PackedSchedule).decode


def schedules_of(
    queue: QueueRef, packed: Mapping[bytes, bytes], bodies: Mapping[bytes, bytes]
) -> list[StoredSchedule]:
    """The schedules of a queue, by name."""
    return [schedule_of(queue, name, packed[name], bodies.get(name)) for name in sorted(packed)]


def schedule_of(queue: QueueRef, name: bytes, packed: bytes | None, body: bytes | None) -> StoredSchedule:
    """One schedule. A damaged one has no body: it does not fire until an app declares it again."""
    shown = name.decode(errors="backslashreplace")
    try:
        read = _read_schedule(packed or b"")
    except DECODE_ERRORS:
        return StoredSchedule(queue, shown, b"", None)
    return StoredSchedule(queue, shown, body or b"", _at(read.next_at), _at(read.last_at), read.paused)


def _at(value: int | bool) -> int | None:
    return None if value is False else value
