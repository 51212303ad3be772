"""What the service is to reach beside the direct client."""

from collections.abc import Sequence

from benchmarks.cases import OURS
from benchmarks.http.creating import DIRECT
from benchmarks.results import Row, Verdict, at_least, first


def verdicts(rows: Sequence[Row]) -> list[Verdict]:
    """Every goal that the rows say something about."""
    out: list[Verdict] = []
    for section, wanted, goal in (
        ("create", 0.4, "100 jobs in a request at least 40 % of the direct client"),
        ("worker", 0.3, "a remote worker at least 30 % of one at the file"),
    ):
        ours, direct = first(rows, section, OURS, "rate"), first(rows, section, DIRECT, "rate")
        if ours is not None and direct is not None:
            out.append(at_least(wanted, goal, ours, direct, against=DIRECT))
    return out
