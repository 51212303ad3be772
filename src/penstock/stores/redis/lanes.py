"""Declarations as they stand in the server, and the lanes that keys take turns in."""

from typing import Final

import msgspec

from penstock.core.limits import Declaration


class Lane(msgspec.Struct, frozen=True, array_like=True):
    """A key's lane in the order of lua/include/lanes.lua. New fields come at the end."""

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


read_lane: Final = msgspec.msgpack.Decoder(Lane).decode
read_declaration: Final = msgspec.json.Decoder(Declaration).decode
write_declaration: Final = msgspec.json.Encoder().encode
