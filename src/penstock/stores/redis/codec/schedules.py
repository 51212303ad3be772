"""Schedules as scripts keep them: a packed part that they read, and a body that they do not."""

from collections.abc import Mapping
from typing import Final

import msgspec

from penstock.core.job import QueueRef
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
    return [schedule_of(queue, name, packed[name], bodies[name]) for name in sorted(packed)]


def schedule_of(queue: QueueRef, name: bytes, packed: bytes, body: bytes) -> StoredSchedule:
    """One schedule."""
    read = _read_schedule(packed)
    return StoredSchedule(queue, name.decode(), body, _at(read.next_at), _at(read.last_at), read.paused)


def _at(value: int | bool) -> int | None:
    return None if value is False else value
