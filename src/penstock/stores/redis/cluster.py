"""Which node of a cluster has a key. A server that is no cluster is a cluster of one node."""

import binascii
from collections.abc import Sequence
from typing import Any, Final

from penstock.stores.redis.address import Address

_SLOTS: Final = 16_384
_KEYLESS: Final = frozenset({"PING", "TIME", "INFO", "CONFIG", "PUBLISH", "CLUSTER"})


def key_of(command: Sequence[Any]) -> bytes | None:
    """The key that says where a command goes; None when any node will do."""
    if command[0] in ("EVAL", "EVALSHA"):
        key = command[3] if command[2] else None
    else:
        key = None if command[0] in _KEYLESS else command[1]
    return key.encode() if isinstance(key, str) else key


def slot_of(key: bytes) -> int:
    """The slot of a key, by its hash tag if it has one.

    >>> slot_of(b"penstock:{default/mail}:meta") == slot_of(b"default/mail")
    True
    """
    start = key.find(b"{")
    if start >= 0 and (end := key.find(b"}", start + 1)) > start + 1:
        key = key[start + 1 : end]
    return binascii.crc_hqx(key, 0) % _SLOTS


class Nodes:
    """The addresses of the nodes, and what is known of their slots."""

    def __init__(self, seeds: Sequence[Address]) -> None:
        self._seeds = tuple(seeds)
        self._ranges: list[tuple[int, int, Address]] = []
        self._replicas: list[Address] = []
        self._moved: dict[int, Address] = {}
        self._first: Address | None = None

    def all(self) -> list[Address]:
        """Every address that is known: the one preferred, those of the url, other primaries, replicas."""
        first = [] if self._first is None else [self._first]
        primaries = [address for _, _, address in self._ranges]
        return list(dict.fromkeys([*first, *self._seeds, *primaries, *self._moved.values(), *self._replicas]))

    def primaries(self) -> list[Address]:
        """The nodes that have slots; where none are known, the address of the url."""
        return list(dict.fromkeys(address for _, _, address in self._ranges)) or [self._seeds[0]]

    def prefer(self, address: Address) -> None:
        """The node that commands without a key go to first: it has just answered one."""
        self._first = address

    def at(self, command: Sequence[Any]) -> Address | None:
        """Where a command goes, as far as it is known; None when any node will do."""
        # Most servers are no cluster, and have nothing to compute.
        key = key_of(command) if self._ranges or self._moved else None
        if key is None:
            return None
        slot = slot_of(key)
        if slot in self._moved:
            return self._moved[slot]
        return next((at for first, last, at in self._ranges if first <= slot <= last), None)

    def learn(self, slots: Sequence[Sequence[Any]], teller: Address) -> bool:
        """Take in what CLUSTER SLOTS tells; False when that is nothing, as by a node that has joined none."""
        if not slots:
            return False
        self._ranges = [(first, last, _address(node, teller)) for first, last, node, *_ in slots]
        self._replicas = [_address(node, teller) for _, _, _, *others in slots for node in others]
        self._moved = {}
        return True

    def move(self, error: str, teller: Address) -> Address:
        """The address in a MOVED or ASK; of a MOVED it is remembered."""
        kind, slot, place = error.split(" ")[:3]
        host, _, port = place.rpartition(":")
        address = Address(host or teller.host, int(port))
        if kind == "MOVED":
            self._moved[int(slot)] = address
        return address


def _address(node: Sequence[Any], teller: Address) -> Address:
    # A node that does not know its own name is asked under the one that it was found by.
    host = node[0].decode() if node[0] else ""
    return Address(host if host not in ("", "?") else teller.host, int(node[1]))
