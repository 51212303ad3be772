"""Percentiles of waiting times."""

import math
import statistics
from collections.abc import Sequence


def percentiles(waits: Sequence[float]) -> dict[str, float]:
    """The middle one, and the one that 99 % do not exceed."""
    return {"p50": statistics.median(waits), "p99": sorted(waits)[math.ceil(0.99 * len(waits)) - 1]}
