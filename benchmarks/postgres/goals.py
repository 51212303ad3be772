"""What the PostgreSQL store is to reach: beside its peers, and by itself."""

from collections.abc import Sequence

from benchmarks.beside import cancelling
from benchmarks.beside.depth import FEW, MANY
from benchmarks.cases import OURS
from benchmarks.postgres.sides import PEERS, PGQUEUER, PROCRASTINATE
from benchmarks.postgres.snapshot import FIRST, LAST
from benchmarks.results import Row, Verdict, at_least, at_most, first, select


def verdicts(rows: Sequence[Row]) -> list[Verdict]:
    """Every goal that the rows say something about."""
    return [*_rates(rows), *_waits(rows), *_alone(rows), *cancelling.verdicts(rows)]


def _rates(rows: Sequence[Row]) -> list[Verdict]:
    out: list[Verdict] = []
    ours = first(rows, "processing", OURS, "rate")
    for peer, wanted in ((PGQUEUER, 2), (PROCRASTINATE, 20)):
        best = max(select(rows, "processing", peer, "rate"), key=_median, default=None)
        if ours is not None and best is not None:
            goal = f"processing at least {wanted} × {peer}"
            out.append(at_least(wanted, goal, ours, best, against=f"{peer}, {best.label}"))
    ours = first(rows, "bulk", OURS, "rate")
    best = max(_of_peers(rows, "bulk", "rate"), key=_median, default=None)
    if ours is not None and best is not None:
        goal = "bulk enqueue at least 2 × the faster peer"
        out.append(at_least(2, goal, ours, best, against=f"{best.side}, {best.label}"))
    return out


def _waits(rows: Sequence[Row]) -> list[Verdict]:
    ours = first(rows, "pickup", OURS, "p50")
    best = min(_of_peers(rows, "pickup", "p50"), key=_median, default=None)
    if ours is None or best is None:
        return []
    goal = "pick-up p50 at most 1.25 × the best peer's"
    return [at_most(1.25, goal, ours, best, against=f"{best.side}, {best.label}")]


def _alone(rows: Sequence[Row]) -> list[Verdict]:
    out: list[Verdict] = []
    few, many = (first(rows, "claim", OURS, figure) for figure in (FEW, MANY))
    if few is not None and many is not None:
        out.append(at_most(1.5, "claim from many at most 1.5 × that from few", many, few, against=few.unit))
    begin, end = (first(rows, "snapshot", OURS, figure) for figure in (FIRST, LAST))
    if begin is not None and end is not None:
        goal = "claim at the end of an old snapshot at most 2 × the claim at its beginning"
        out.append(at_most(2, goal, end, begin, against=begin.unit))
    return out


def _of_peers(rows: Sequence[Row], section: str, figure: str) -> list[Row]:
    return [row for peer in PEERS for row in select(rows, section, peer.name, figure)]


def _median(row: Row) -> float:
    return row.median or 0.0
