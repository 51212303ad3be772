"""What the service is to reach beside the direct client of the same store."""

from collections.abc import Sequence

from benchmarks.cases import OURS
from benchmarks.results import Row, Verdict, at_least, at_most, select
from benchmarks.service.hostile import QUIET
from benchmarks.service.measures import DIRECT, HTTP, REMOTE


def verdicts(rows: Sequence[Row]) -> list[Verdict]:
    """Every goal that the rows say something about."""
    out: list[Verdict] = []
    for section, ways, wanted in (("create", (REMOTE, HTTP), 0.4), ("work", (REMOTE,), 0.3)):
        for direct in select(rows, section, DIRECT, "rate"):
            for row in select(rows, section, OURS, "rate"):
                if any(row.label == f"{direct.label}, {way}" for way in ways):
                    verb = "creating" if section == "create" else "working"
                    goal = f"{verb} at least {wanted:.0%} of the direct client: {row.label}"
                    out.append(at_least(wanted, goal, row, direct, against=f"direct, {direct.label}"))
    for quiet in select(rows, "hostile", QUIET, "p99"):
        for row in select(rows, "hostile", OURS, "p99"):
            if row.label == quiet.label:
                goal = f"p99 of another tenant at most 3 times the quiet one: {row.label}"
                out.append(at_most(3, goal, row, quiet, against="without the hostile tenant"))
    return out
