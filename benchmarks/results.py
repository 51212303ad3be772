"""What was measured, and how it stands to the goals."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

from benchmarks.cases import OURS, PEER
from benchmarks.keyed import FAR_LIMITS, GLOBAL, KEYED


@dataclass(frozen=True, slots=True)
class Row:
    """One figure of one case, a value per round."""

    section: str
    durability: str
    side: str
    label: str
    figure: str
    unit: str
    values: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        """What is reported."""
        return statistics.median(self.values)


@dataclass(frozen=True, slots=True)
class Verdict:
    """A goal beside what was reached: a ratio per round, as both sides met the same noise there."""

    goal: str
    against: str
    ratios: list[float]
    is_met: bool

    @property
    def median(self) -> float:
        """The ratio that is judged."""
        return statistics.median(self.ratios)


def verdicts(rows: Sequence[Row]) -> list[Verdict]:
    """Every goal that the rows say something about, at the durability `server`."""
    server = [row for row in rows if row.durability == "server"]
    out: list[Verdict] = []
    for section, figure, text, wanted in (
        ("processing", "rate", "processing at least 5 × the peer", 5.0),
        ("single", "rate", "concurrent single enqueues at least 5 × the peer", 5.0),
        ("bulk", "rate", "bulk enqueue at least 20 × the peer", 20.0),
    ):
        mine = _first(server, section, OURS, figure)
        theirs = [row for row in _all(server, section, PEER, figure) if "by hand" not in row.label]
        if mine is not None and theirs:
            best = max(theirs, key=lambda row: row.median)
            out.append(_at_least(text, wanted, mine, best, "its best"))
            equal = _equal(theirs)
            if equal is not None and equal is not best:
                out.append(_at_least(text, wanted, mine, equal, "equal concurrency"))
    mine = _first(server, "pickup", OURS, "p50")
    if mine is not None:
        out.extend(_no_worse(mine, row) for row in reversed(_all(server, "pickup", PEER, "p50")))
    depths = _all(server, "claim", OURS, "ms")
    if len(depths) == 2:
        few, many = depths
        ratios = _ratios(many, few)
        text = f"claim from {many.label} at most 1.5 × the claim from {few.label}"
        out.append(Verdict(text, few.label, ratios, statistics.median(ratios) <= 1.5))
    return out + _keyed(server)


def _keyed(rows: Sequence[Row]) -> list[Verdict]:
    """What keys, limits and delays may cost."""
    out: list[Verdict] = []
    rates = {row.label: row for row in _all(rows, "keyed", OURS, "rate")}
    for label, least in ((KEYED, 0.6), (FAR_LIMITS, 0.8)):
        if label in rates and GLOBAL in rates:
            ratios = _ratios(rates[label], rates[GLOBAL])
            text = f"processing, {label}: at least {least:.0%} of global"
            out.append(Verdict(text, GLOBAL, ratios, statistics.median(ratios) >= least))
    for figure, what in (("claim_ms", "claim with"), ("promote_us", "promotion of a job with")):
        found = _all(rows, "keyed", OURS, figure)
        for row in found[1:]:
            ratios = _ratios(row, found[0])
            text = f"{what} {row.label}: at most 1.5 × that with {found[0].label}"
            out.append(Verdict(text, found[0].label, ratios, statistics.median(ratios) <= 1.5))
    return out


def _at_least(text: str, wanted: float, mine: Row, theirs: Row, why: str) -> Verdict:
    ratios = _ratios(mine, theirs)
    return Verdict(text, f"{theirs.label} ({why})", ratios, statistics.median(ratios) >= wanted)


def _no_worse(mine: Row, theirs: Row) -> Verdict:
    ratios = _ratios(mine, theirs)
    return Verdict(
        "pick-up p50 no later than the peer's", theirs.label, ratios, statistics.median(ratios) <= 1
    )


def _equal(theirs: Sequence[Row]) -> Row | None:
    """The peer at our own concurrency, where the section has such a case."""
    return next((row for row in theirs if row.label in {"-w 100", "50 threads"}), None)


def _ratios(above: Row, below: Row) -> list[float]:
    return [a / b for a, b in zip(above.values, below.values, strict=True)]


def _all(rows: Sequence[Row], section: str, side: str, figure: str) -> list[Row]:
    return [row for row in rows if (row.section, row.side, row.figure) == (section, side, figure)]


def _first(rows: Sequence[Row], section: str, side: str, figure: str) -> Row | None:
    return next(iter(_all(rows, section, side, figure)), None)
