"""Maps that keep few of their entries in memory and hand the others to a scratch table."""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Final, Generic, Protocol, TypeVar

import msgspec

V = TypeVar("V")

HOT: Final = 8_192
"""Entries of one map that stay in memory."""
_FILTER_BITS: Final = 1 << 23
"""A megabyte per map that spilled: nearly every key that was never spilled is known to be absent from it."""


class ScratchTable(Protocol):
    """Bytes by key, outside of memory. The code that makes the table also drops it."""

    def get(self, key: str) -> bytes | None:
        """The value of the key, if the table has it."""

    def put(self, entries: Iterable[tuple[str, bytes]]) -> None:
        """Write entries, over older ones with the same key."""

    def remove(self, keys: Iterable[str]) -> None:
        """Delete entries; keys that the table does not have are ignored."""

    def ordered(self) -> Iterator[tuple[str, bytes]]:
        """All entries in the order of their keys' code points."""


NewTable = Callable[[], ScratchTable]
"""Makes an empty scratch table."""


class SpillingMap(Generic[V]):
    """A map from text to values of one type. Without `new_table` all of it stays in memory.

    Values may be changed in place until the next `trim`: only `trim` and `ordered` move them to the table.
    """

    def __init__(self, kind: type[V], new_table: NewTable | None = None) -> None:
        self._hot: dict[str, V] = {}
        self._table = None if new_table is None else new_table()
        self._gone: set[str] = set()
        """Keys that were deleted, and that the table may still have."""
        self._filter = bytearray()
        """A Bloom filter with one hash of the keys that were ever spilled; empty before the first of them."""
        self._encode = msgspec.msgpack.Encoder().encode
        self._decode = msgspec.msgpack.Decoder(kind).decode

    def get(self, key: str) -> V | None:
        """The value of the key."""
        value = self._hot.get(key)
        if value is None and self._table is not None and self._may_be_spilled(key):
            packed = self._table.get(key)
            if packed is not None:
                value = self._hot[key] = self._decode(packed)
        return value

    def __setitem__(self, key: str, value: V) -> None:
        """Set the value of the key."""
        self._hot[key] = value
        if self._gone:
            self._gone.discard(key)

    def discard(self, key: str) -> None:
        """Delete the key, if it is there."""
        self._hot.pop(key, None)
        if self._table is not None and self._may_be_spilled(key):
            self._gone.add(key)

    def trim(self) -> None:
        """Move the older entries to the table if too many are in memory."""
        if self._table is not None and len(self._hot) + len(self._gone) > HOT:
            self._spill(self._table, len(self._hot) - HOT // 2)

    def ordered(self) -> Iterator[tuple[str, V]]:
        """All entries in the order of their keys. The map is not to be changed before the last one."""
        if self._table is None:
            yield from sorted(self._hot.items(), key=_key)
            return
        self._spill(self._table, len(self._hot))
        decode = self._decode
        for key, packed in self._table.ordered():
            yield key, decode(packed)

    def __len__(self) -> int:
        """How many entries there are."""
        return len(self._hot) if self._table is None else sum(1 for _ in self.ordered())

    def _spill(self, table: ScratchTable, many: int) -> None:
        if self._gone:
            table.remove(self._gone)
            self._gone = set()
        if many > 0:
            self._filter = self._filter or bytearray(_FILTER_BITS // 8)
            keys = list(islice(self._hot, many))
            bits, hot, encode = self._filter, self._hot, self._encode
            for key in keys:
                bit = hash(key) % _FILTER_BITS
                bits[bit >> 3] |= 1 << (bit & 7)
            table.put((key, encode(hot.pop(key))) for key in keys)

    def _may_be_spilled(self, key: str) -> bool:
        if not self._filter:
            return False
        bit = hash(key) % _FILTER_BITS
        return bool(self._filter[bit >> 3] & 1 << (bit & 7)) and key not in self._gone


def _key(entry: tuple[str, object]) -> str:
    return entry[0]
