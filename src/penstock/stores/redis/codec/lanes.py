"""Declarations as they stand in the server, and the lanes that keys take turns in."""

from collections.abc import Mapping
from typing import Final

import msgspec

from penstock.core.limits import Declaration
from penstock.stores.corruption import DECODE_ERRORS


class Lane(msgspec.Struct, frozen=True, array_like=True):
    """A key's lane as scripts keep it. New fields come at the end.

    `turn` is false while the key could not be served, `joined` its place among equal turns, `held_until` the
    time until which its rate holds it back or false, and `arrival_us` when its next job would be on time.
    """

    number: int
    waiting: int
    running: int
    turn: int | bool
    joined: int
    held_until: int | bool
    arrival_us: int
    limit: int | bool
    weight: int

    @property
    def is_used(self) -> bool:
        """True when the key has jobs or a rule."""
        return bool(self.waiting or self.running or self.limit or self.weight != 1)


LANE_FIELDS: Final = Lane.__struct_fields__
_decode_lane: Final = msgspec.msgpack.Decoder(Lane).decode
read_declaration: Final = msgspec.json.Decoder(Declaration).decode
write_declaration: Final = msgspec.json.Encoder().encode


def read_lane(packed: bytes) -> Lane | None:
    """The lane; None for one that somebody has damaged, which is as good as none."""
    try:
        return _decode_lane(packed)
    except DECODE_ERRORS:
        return None


def read_lanes(packed: Mapping[bytes, bytes]) -> dict[str, Lane]:
    """The lanes by their keys, without those that are damaged."""
    return {
        key.decode(errors="backslashreplace"): lane
        for key, each in packed.items()
        if (lane := read_lane(each)) is not None
    }
