"""What a worker over many queues may cost."""

import statistics
from collections.abc import Sequence
from typing import Final

from benchmarks.results import Row, Verdict

_GOALS: Final = (
    ("rss", "memory under 250 MiB", 250.0),
    ("cpu", "under 10 % of a core while idle", 10.0),
    ("descriptors", "at most 64 descriptors", 64.0),
    ("put", "20,000 schedules are put within 20 s", 20.0),
    ("p99", "a job in any queue starts within 100 ms (p99)", 100.0),
)


def verdicts(rows: Sequence[Row]) -> list[Verdict]:
    """Every goal that the rows say something about, as a share of what is allowed."""
    out: list[Verdict] = []
    for row in rows:
        for figure, goal, most in _GOALS:
            if row.figure == figure and row.values:
                shares = [value / most for value in row.values]
                out.append(Verdict("", goal, row.label, shares, statistics.median(shares) <= 1))
    return out
