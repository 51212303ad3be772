"""What processes may cost: no more than where peers have them."""

from collections.abc import Sequence
from typing import Final

from benchmarks.execution.sides import FORKED, KEPT, PREFORK, PROGRAM
from benchmarks.results import Row, Verdict, at_least

_RQ: Final = "one at a time, a fork per job"
_GOALS: Final = (
    ("warm processes no slower than Celery's prefork", KEPT, PREFORK),
    ("a fork per job no slower than RQ's", FORKED, _RQ),
    ("a program per job no slower than RQ's fork", PROGRAM, _RQ),
)


def verdicts(rows: Sequence[Row]) -> list[Verdict]:
    """Every goal that the rows say something about."""
    rates = {row.label: row for row in rows if row.values and row.section == "processing"}
    return [
        at_least(1, goal, rates[ours], rates[theirs], against=f"{rates[theirs].side}, {theirs}")
        for goal, ours, theirs in _GOALS
        if ours in rates and theirs in rates
    ]
