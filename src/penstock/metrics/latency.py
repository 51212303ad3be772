"""Times and sizes as histograms, and the percentiles of the newest ones."""

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

SECONDS: Final = (
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
    60.0,
    300.0,
)
"""Upper bounds of the buckets of times."""
SIZES: Final = (0.0, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0)
"""Upper bounds of the buckets of claim sizes."""
RECENT: Final = 1_000
"""Values of which percentiles are computed."""
QUANTILES: Final = (0.5, 0.95, 0.99)


class Histogram:
    """Counts of values per bucket, and their sum."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float] = SECONDS) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, value: float) -> None:
        """Count a value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    @property
    def cumulative(self) -> list[int]:
        """How many values lie at or below each bound; the last one counts all."""
        counted, all_below = [], 0
        for count in self.counts.copy():
            all_below += count
            counted.append(all_below)
        return counted


class RecentValues:
    """The newest values in a ring, sorted when percentiles are asked for.

    >>> recent = RecentValues()
    >>> for value in range(1, 101):
    ...     recent.add(value)
    >>> recent.quantiles((0.5, 0.95, 1.0))
    [50, 95, 100]
    """

    __slots__ = ("_next", "_values", "size")

    def __init__(self, size: int = RECENT) -> None:
        self.size = size
        self._values: list[float] = []
        self._next = 0

    def add(self, value: float) -> None:
        """Keep a value; it takes the place of the oldest one where the ring is full."""
        if len(self._values) < self.size:
            self._values.append(value)
            return
        self._values[self._next] = value
        self._next = (self._next + 1) % self.size

    def quantiles(self, wanted: Sequence[float] = QUANTILES) -> list[float]:
        """The smallest values that so many of all do not exceed; none of no values."""
        ordered = sorted(self._values)
        if not ordered:
            return []
        return [ordered[max(0, -int(-each * len(ordered) // 1) - 1)] for each in wanted]
