"""What the Redis store is to reach: beside its peers, beside a bare loop, and by itself."""

from collections.abc import Callable, Sequence
from typing import Final

from benchmarks.beside import cancelling, cpu
from benchmarks.beside.depth import FEW, MANY
from benchmarks.cases import OURS
from benchmarks.redis.bare import BARE
from benchmarks.redis.memory import TOTAL
from benchmarks.redis.sides import EXTRAS, NODE
from benchmarks.results import Row, Verdict, at_least, at_most, first, select

MEMORY_LIMIT: Final = 650
_OTHERWISE: Final = {(side.name, side.label) for side in EXTRAS}


def verdicts(rows: Sequence[Row]) -> list[Verdict]:
    """Every goal that the rows say something about."""
    return [*_rates(rows), *_waits(rows), *_bare(rows), *_alone(rows), *cancelling.verdicts(rows)]


def _rates(rows: Sequence[Row]) -> list[Verdict]:
    out: list[Verdict] = []
    processing = first(rows, "processing", OURS, "rate")
    if processing is not None:
        peers = _peers(rows, "processing", "rate")
        python = [row for row in peers if row.side != NODE]
        alike = [row for row in python if (row.side, row.label) not in _OTHERWISE]
        goal = "processing at least 5 × the fastest Python peer"
        out += _beside(at_least, 5, f"{goal} at concurrency 100", processing, _fastest(alike))
        otherwise = [row for row in python if (row.side, row.label) in _OTHERWISE]
        out += _beside(at_least, 5, f"{goal} as fast as it can be set up", processing, _fastest(otherwise))
        node = [row for row in peers if row.side == NODE]
        out += _beside(at_least, 1, f"processing ahead of {NODE}", processing, _fastest(node))
    for section, what in (("bulk", "bulk enqueue"), ("single", "100 concurrent single enqueues")):
        ours = first(rows, section, OURS, "rate")
        if ours is not None:
            peers = _peers(rows, section, "rate")
            python = [row for row in peers if row.side != NODE]
            out += _beside(
                at_least, 4, f"{what} at least 4 × the fastest Python peer", ours, _fastest(python)
            )
            node = [row for row in peers if row.side == NODE]
            out += _beside(at_least, 4, f"{what} at least 4 × {NODE}", ours, _fastest(node))
    return out


def _waits(rows: Sequence[Row]) -> list[Verdict]:
    out: list[Verdict] = []
    for figure, most in (("p50", 1.6), ("p99", 2.0)):
        ours = first(rows, "pickup", OURS, figure)
        theirs = _peers(rows, "pickup", figure)
        if ours is not None and theirs:
            best = min(theirs, key=_median)
            out += _beside(at_most, most, f"pick-up {figure} at most {most} × the best peer's", ours, best)
    return out


def _bare(rows: Sequence[Row]) -> list[Verdict]:
    out: list[Verdict] = []
    for figure, what, least in (("processing", "processing", 0.5), ("bulk", "bulk enqueue", 0.7)):
        ours, bare = first(rows, "bare", OURS, figure), first(rows, "bare", BARE, figure)
        if ours is not None and bare is not None:
            goal = f"{what} at least {least:.0%} of the bare loop's"
            out.append(at_least(least, goal, ours, bare))
    return out


def _alone(rows: Sequence[Row]) -> list[Verdict]:
    out: list[Verdict] = []
    for few, many in zip(select(rows, "claim", OURS, FEW), select(rows, "claim", OURS, MANY), strict=True):
        server, _, _ = many.label.partition(":")
        goal = f"claim on {server} at most 1.3 × that from few"
        out.append(at_most(1.3, goal, many, few, against=few.unit))
    memory = first(rows, "memory", OURS, TOTAL)
    if memory is not None:
        found = [value / MEMORY_LIMIT for value in memory.values]
        goal = f"at most {MEMORY_LIMIT} bytes of memory per pending job"
        out.append(Verdict("", goal, f"{MEMORY_LIMIT} bytes", found, max(found) <= 1))
    for what, whose in (("client", "the workers"), ("server", "the server"), ("both", "both together")):
        one, two = (first(rows, "cpu", OURS, cpu.figure(what, count)) for count in cpu.WORKERS)
        if one is not None and two is not None:
            goal = f"processor time of {whose} per job: with two workers within 10 % of one"
            out.append(at_most(1.1, goal, two, one, against="1 worker"))
    return out


def _beside(
    judge: Callable[..., Verdict], wanted: float, goal: str, ours: Row, theirs: Row | None
) -> list[Verdict]:
    if theirs is None:
        return []
    return [judge(wanted, goal, ours, theirs, against=f"{theirs.side}, {theirs.label}")]


def _peers(rows: Sequence[Row], section: str, figure: str) -> list[Row]:
    return [
        row
        for row in rows
        if row.values and row.section == section and row.figure == figure and row.side != OURS
    ]


def _fastest(rows: Sequence[Row]) -> Row | None:
    return max(rows, key=_median, default=None)


def _median(row: Row) -> float:
    return row.median or 0.0
