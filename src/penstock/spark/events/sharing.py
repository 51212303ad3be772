"""Who gets how much of a batch that is not for all."""

from collections.abc import Mapping
from typing import TypeVar

K = TypeVar("K")


def shares(wanted: Mapping[K, int], limit: int | None, turn: int = 0) -> dict[K, int]:
    """How many each gets, together no more than `limit`.

    Nobody gets more than others who could use it too. What cannot be divided evenly goes to some of them, to
    others with the next `turn`.
    """
    given = dict.fromkeys(wanted, 0)
    if limit is None:
        return dict(wanted)
    left, rest = limit, sorted(wanted, key=lambda each: wanted[each])
    while rest and wanted[rest[0]] * len(rest) <= left:
        modest = rest.pop(0)
        given[modest] = wanted[modest]
        left -= wanted[modest]
    if rest:
        even, odd = divmod(left, len(rest))
        # In an order that does not change from turn to turn.
        equals = [each for each in wanted if each in set(rest)]
        for at, each in enumerate(equals):
            given[each] = even + ((at - turn * odd) % len(equals) < odd)
    return given
