"""What the pipeline is to reach: beside programs without Spark, beside itself, and alone."""

import statistics
from collections.abc import Sequence
from typing import Final

from benchmarks.cases import OURS
from benchmarks.results import Row, Verdict, at_least, at_most, first, select
from benchmarks.spark.auditing import ALL
from benchmarks.spark.enqueueing import CLIENT, KEYED
from benchmarks.spark.following import READER
from benchmarks.spark.reading import JDBC, NONE, OPTIONED, PSYCOPG, PUSHED

AUDITED: Final = {"cold": 80_000, "warm": 180_000}
"""Events a second with all rules together, of the first audit of a session and of the third."""
FLAT: Final = 1.25
HEAD_MS: Final = 10.0
PIPED: Final = 80_000
PIPED_CPU: Final = 22.0


def verdicts(rows: Sequence[Row]) -> list[Verdict]:
    """Every goal that the rows say something about."""
    return [
        *_enqueue(rows),
        *_jobs(rows),
        *_events(rows),
        *_filters(rows),
        *_lake(rows),
        *_audit(rows),
        *_since(rows),
        *_heads(rows),
    ]


def _enqueue(rows: Sequence[Row]) -> list[Verdict]:
    ours = first(rows, "enqueue", OURS, "rate")
    client = next((row for row in select(rows, "enqueue", CLIENT, "rate") if row.label == KEYED), None)
    again = first(rows, "enqueue", OURS, "again")
    out: list[Verdict] = []
    if ours is not None and client is not None:
        goal = "enqueue on Redis at least as fast as one plain client process, both with keys"
        out.append(at_least(1, goal, ours, client))
    if ours is not None and again is not None:
        goal = "the same rows again at least 2 × as fast"
        out.append(at_least(2, goal, again, ours, against="the first write"))
    return out


def _jobs(rows: Sequence[Row]) -> list[Verdict]:
    ours = first(rows, "jobs", OURS, "rate")
    jdbc, psycopg = first(rows, "jobs", JDBC, "rate"), first(rows, "jobs", PSYCOPG, "rate")
    if ours is None:
        return []
    if jdbc is not None:
        return [at_least(1, "jobs of PostgreSQL at least as fast as Spark's JDBC reader", ours, jdbc)]
    if psycopg is not None:
        return [at_least(2, "jobs of PostgreSQL at least 2 × psycopg", ours, psycopg)]
    return []


def _events(rows: Sequence[Row]) -> list[Verdict]:
    ours, reader = first(rows, "events", OURS, "rate"), first(rows, "events", READER, "rate")
    if ours is None or reader is None:
        return []
    return [
        at_least(0.7, "events to Parquet at least 70 % of a plain reader that keeps nothing", ours, reader)
    ]


def _lake(rows: Sequence[Row]) -> list[Verdict]:
    out: list[Verdict] = []
    for row in select(rows, "lake", OURS, "rate"):
        found = [value / PIPED for value in row.values]
        goal = f"store to bronze and silver at least {PIPED:,} events/s, warm: {row.label}"
        out.append(Verdict("", goal, f"{PIPED:,} events/s", found, statistics.median(found) >= 1))
    for row in select(rows, "lake", OURS, "cpu"):
        found = [value / PIPED_CPU for value in row.values]
        goal = f"the same in at most {PIPED_CPU:.0f} processor s per million events: {row.label}"
        out.append(Verdict("", goal, f"{PIPED_CPU:.0f} s", found, statistics.median(found) <= 1))
    return out


def _filters(rows: Sequence[Row]) -> list[Verdict]:
    every = first(rows, "filter", OURS, NONE)
    some = [first(rows, "filter", OURS, how) for how in (PUSHED, OPTIONED)]
    if every is None:
        return []
    return [
        at_least(
            4, f"one job of a hundred at least 4 × as fast as all, by {row.figure}", every, row, against=NONE
        )
        for row in some
        if row is not None
    ]


def _audit(rows: Sequence[Row]) -> list[Verdict]:
    out: list[Verdict] = []
    for figure, wanted in AUDITED.items():
        row = next((row for row in select(rows, "audit", OURS, figure) if row.label == ALL), None)
        if row is not None:
            found = [value / wanted for value in row.values]
            goal = f"audit with all rules, {figure}, at least {wanted:,} events/s"
            out.append(Verdict("", goal, f"{wanted:,} events/s", found, statistics.median(found) >= 1))
    return out


def _since(rows: Sequence[Row]) -> list[Verdict]:
    taken = sorted(
        (int(row.label.split()[1].replace(",", "")), row) for row in select(rows, "since", OURS, "next")
    )
    if len(taken) < 2:
        return []
    (_, short), (_, long) = taken[0], taken[-1]
    goal = f"audit of what came since the last at most {FLAT} × as long {long.label}"
    return [at_most(FLAT, goal, long, short)]


def _heads(rows: Sequence[Row]) -> list[Verdict]:
    out: list[Verdict] = []
    for row in select(rows, "heads", OURS, "p50"):
        found = [value / HEAD_MS for value in row.values]
        goal = f"latestOffset in less than {HEAD_MS:.0f} ms: {row.label}"
        out.append(Verdict("", goal, f"{HEAD_MS:.0f} ms", found, max(found) < 1))
    return out
