"""What the SQLite store is to reach beside its peer, and what keys, limits and depth may cost."""

from collections.abc import Sequence

from benchmarks.cases import OURS
from benchmarks.results import Row, Verdict, at_least, at_most, first, select
from benchmarks.sqlite.keyed import FAR_LIMITS, GLOBAL, KEYED
from benchmarks.sqlite.plan import PEER


def verdicts(rows: Sequence[Row]) -> list[Verdict]:
    """Every goal that the rows say something about; those beside the peer at both durabilities."""
    server = [row for row in rows if row.durability == "server"]
    power = [row for row in rows if row.durability == "power"]
    out = _beside_peer(server, "server") + _beside_peer(power, "power")
    depths = select(server, "claim", OURS, "ms")
    if len(depths) == 2:
        few, many = depths
        goal = f"claim from {many.label} at most 1.5 × the claim from {few.label}"
        out.append(at_most(1.5, goal, many, few, durability="server"))
    return out + _keyed(server)


def _beside_peer(rows: Sequence[Row], durability: str) -> list[Verdict]:
    out: list[Verdict] = []
    for section, goal, wanted in (
        ("processing", "processing at least 5 × the peer", 5.0),
        ("single", "concurrent single enqueues at least 5 × the peer", 5.0),
        ("bulk", "bulk enqueue at least 20 × the peer", 20.0),
    ):
        mine = first(rows, section, OURS, "rate")
        theirs = [row for row in select(rows, section, PEER, "rate") if "by hand" not in row.label]
        if mine is None or not theirs:
            continue
        best, equal = max(theirs, key=lambda row: row.median or 0), _equal(theirs)
        found = {best.label: (best, "its best")}
        if equal is not None:
            found.setdefault(equal.label, (equal, "equal concurrency"))
        out += [
            at_least(wanted, goal, mine, row, against=f"{row.label} ({why})", durability=durability)
            for row, why in found.values()
        ]
    waits = first(rows, "pickup", OURS, "p50")
    if waits is not None:
        goal = "pick-up p50 no later than the peer's"
        polled = reversed(select(rows, "pickup", PEER, "p50"))
        out += [at_most(1, goal, waits, row, durability=durability) for row in polled]
    return out


def _keyed(rows: Sequence[Row]) -> list[Verdict]:
    """What keys, limits and delays may cost."""
    out: list[Verdict] = []
    rates = {row.label: row for row in select(rows, "keyed", OURS, "rate")}
    for label, least in ((KEYED, 0.6), (FAR_LIMITS, 0.8)):
        if label in rates and GLOBAL in rates:
            goal = f"processing, {label}: at least {least:.0%} of global"
            out.append(at_least(least, goal, rates[label], rates[GLOBAL], durability="server"))
    for figure, what in (("claim_ms", "claim with"), ("promote_us", "promotion of a job with")):
        found = select(rows, "keyed", OURS, figure)
        for row in found[1:]:
            goal = f"{what} {row.label}: at most 1.5 × that with {found[0].label}"
            out.append(at_most(1.5, goal, row, found[0], durability="server"))
    return out


def _equal(theirs: Sequence[Row]) -> Row | None:
    """The peer at our own concurrency, where the section has such a case."""
    return next((row for row in theirs if row.label in {"-w 100", "50 threads"}), None)
