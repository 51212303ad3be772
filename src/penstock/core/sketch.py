"""Distributions of times as counts in buckets that grow with the value: small, mergeable, whole numbers only.

A value below 16 has a bucket of its own. From there on each power of two has 16 buckets, so that the middle
of a bucket is off by at most 1/32 from any value in it.
"""

from collections.abc import Mapping
from typing import Final

_BITS: Final = 4
RELATIVE_ERROR: Final = 1 / (1 << (_BITS + 1))
"""A percentile of a sketch is at most this far from the one of the values, as a part of it."""

Sketch = dict[int, int]
"""How many values fell into each bucket."""


def add(sketch: Sketch, value: int, many: int = 1) -> None:
    """Count a value; one below zero, as after a clock was set back, counts as zero."""
    bucket = bucket_of(value)
    sketch[bucket] = sketch.get(bucket, 0) + many


def merge(into: Sketch, other: Mapping[int, int]) -> None:
    """Count what another sketch has counted."""
    for bucket, many in other.items():
        into[bucket] = into.get(bucket, 0) + many


def quantile(sketch: Mapping[int, int], part: float) -> int | None:
    """The value that so large a part of all values does not exceed; None of no values."""
    total = sum(sketch.values())
    if not total:
        return None
    rank, seen = max(1, -int(-part * total // 1)), 0
    for bucket in sorted(sketch):
        seen += sketch[bucket]
        if seen >= rank:
            return middle_of(bucket)
    return middle_of(max(sketch))


def bucket_of(value: int) -> int:
    """The number of the bucket that a value falls into."""
    value = max(0, value)
    shift = max(0, value.bit_length() - _BITS - 1)
    return (shift << _BITS) + (value >> shift)


def middle_of(bucket: int) -> int:
    """The middle of the values that fall into a bucket."""
    shift = max(0, (bucket >> _BITS) - 1)
    low = (bucket - (shift << _BITS)) << shift
    return low + (1 << shift) // 2
