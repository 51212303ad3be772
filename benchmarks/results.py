"""What was measured, and how it stands to a goal."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Row:
    """One figure of one case, a value per round; none where the case did not get through."""

    section: str
    durability: str
    side: str
    label: str
    figure: str
    unit: str
    values: list[float] = field(default_factory=list)

    @property
    def median(self) -> float | None:
        """What is reported."""
        return statistics.median(self.values) if self.values else None


@dataclass(frozen=True, slots=True)
class Verdict:
    """A goal beside what was reached: a ratio per round, as both sides met the same noise there."""

    durability: str
    goal: str
    against: str
    ratios: list[float]
    is_met: bool

    @property
    def median(self) -> float:
        """The ratio that is judged."""
        return statistics.median(self.ratios)


def at_least(
    wanted: float, goal: str, above: Row, below: Row, *, against: str = "", durability: str = ""
) -> Verdict:
    """One figure has to be so many times the other, or more."""
    found = ratios(above, below)
    is_met = statistics.median(found) >= wanted
    return Verdict(durability, goal, against or below.label, found, is_met)


def at_most(
    wanted: float, goal: str, above: Row, below: Row, *, against: str = "", durability: str = ""
) -> Verdict:
    """One figure may be so many times the other, and no more."""
    found = ratios(above, below)
    is_met = statistics.median(found) <= wanted
    return Verdict(durability, goal, against or below.label, found, is_met)


def ratios(above: Row, below: Row) -> list[float]:
    """Round by round."""
    return [a / b for a, b in zip(above.values, below.values, strict=True)]


def select(rows: Sequence[Row], section: str, side: str, figure: str) -> list[Row]:
    """The rows of a section, a side and a figure that got through."""
    wanted = (section, side, figure)
    return [row for row in rows if row.values and (row.section, row.side, row.figure) == wanted]


def first(rows: Sequence[Row], section: str, side: str, figure: str) -> Row | None:
    """The one that is judged."""
    return next(iter(select(rows, section, side, figure)), None)
