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

    durability: str
    goal: str
    against: str
    ratios: list[float]
    is_met: bool

    @property
    def median(self) -> float:
        """The ratio that is judged."""
        return statistics.median(self.ratios)


def verdicts(rows: Sequence[Row]) -> list[Verdict]:
    """Every goal that the rows say something about; those beside the peer at both durabilities."""
    server = [row for row in rows if row.durability == "server"]
    power = [row for row in rows if row.durability == "power"]
    out = _beside_peer(server, "server") + _beside_peer(power, "power")
    depths = _all(server, "claim", OURS, "ms")
    if len(depths) == 2:
        few, many = depths
        ratios = _ratios(many, few)
        text = f"claim from {many.label} at most 1.5 × the claim from {few.label}"
        out.append(Verdict("server", text, few.label, ratios, statistics.median(ratios) <= 1.5))
    return out + _keyed(server)


def _beside_peer(rows: Sequence[Row], durability: str) -> list[Verdict]:
    out: list[Verdict] = []
    for section, text, wanted in (
        ("processing", "processing at least 5 × the peer", 5.0),
        ("single", "concurrent single enqueues at least 5 × the peer", 5.0),
        ("bulk", "bulk enqueue at least 20 × the peer", 20.0),
    ):
        mine = _first(rows, section, OURS, "rate")
        theirs = [row for row in _all(rows, section, PEER, "rate") if "by hand" not in row.label]
        if mine is None or not theirs:
            continue
        best, equal = max(theirs, key=lambda row: row.median), _equal(theirs)
        found = {best.label: (best, "its best")}
        if equal is not None:
            found.setdefault(equal.label, (equal, "equal concurrency"))
        for theirs_at, why in found.values():
            ratios = _ratios(mine, theirs_at)
            is_met = statistics.median(ratios) >= wanted
            out.append(Verdict(durability, text, f"{theirs_at.label} ({why})", ratios, is_met))
    waits = _first(rows, "pickup", OURS, "p50")
    for row in reversed(_all(rows, "pickup", PEER, "p50")):
        if waits is None:
            break
        ratios = _ratios(waits, row)
        is_met = statistics.median(ratios) <= 1
        out.append(Verdict(durability, "pick-up p50 no later than the peer's", row.label, ratios, is_met))
    return out


def _keyed(rows: Sequence[Row]) -> list[Verdict]:
    """What keys, limits and delays may cost."""
    out: list[Verdict] = []
    rates = {row.label: row for row in _all(rows, "keyed", OURS, "rate")}
    for label, least in ((KEYED, 0.6), (FAR_LIMITS, 0.8)):
        if label in rates and GLOBAL in rates:
            ratios = _ratios(rates[label], rates[GLOBAL])
            text = f"processing, {label}: at least {least:.0%} of global"
            out.append(Verdict("server", text, GLOBAL, ratios, statistics.median(ratios) >= least))
    for figure, what in (("claim_ms", "claim with"), ("promote_us", "promotion of a job with")):
        found = _all(rows, "keyed", OURS, figure)
        for row in found[1:]:
            ratios = _ratios(row, found[0])
            text = f"{what} {row.label}: at most 1.5 × that with {found[0].label}"
            out.append(Verdict("server", text, found[0].label, ratios, statistics.median(ratios) <= 1.5))
    return out


def _equal(theirs: Sequence[Row]) -> Row | None:
    """The peer at our own concurrency, where the section has such a case."""
    return next((row for row in theirs if row.label in {"-w 100", "50 threads"}), None)


def _ratios(above: Row, below: Row) -> list[float]:
    return [a / b for a, b in zip(above.values, below.values, strict=True)]


def _all(rows: Sequence[Row], section: str, side: str, figure: str) -> list[Row]:
    return [row for row in rows if (row.section, row.side, row.figure) == (section, side, figure)]


def _first(rows: Sequence[Row], section: str, side: str, figure: str) -> Row | None:
    return next(iter(_all(rows, section, side, figure)), None)
