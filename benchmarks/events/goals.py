"""What readers of the event log are to reach."""

from collections.abc import Sequence
from typing import Final

from benchmarks.events.reading import ALL
from benchmarks.results import Row, Verdict

LABELS: Final = {100: "100 jobs a call", 1: "1 job a call"}
_GOALS: Final = {LABELS[100]: 400_000, LABELS[1]: 100_000}


def verdicts(rows: Sequence[Row]) -> list[Verdict]:
    """Every goal that the rows say something about, as a share of what is wanted."""
    out: list[Verdict] = []
    for row in rows:
        store, _, label = row.label.partition(", ")
        if row.figure == ALL and row.values:
            wanted = _GOALS[label]
            shares = [value / wanted for value in row.values]
            goal = f"at least {wanted:,} events/s into Arrow at {label}"
            out.append(Verdict("", goal, store, shares, min(shares) >= 1))
    return out
