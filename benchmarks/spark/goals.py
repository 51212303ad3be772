"""What the pipeline is to reach: beside programs without Spark, beside itself, and alone."""

import statistics
from collections.abc import Sequence
from typing import Final

from benchmarks.cases import OURS
from benchmarks.results import Row, Verdict, at_least, first, select
from benchmarks.spark.enqueueing import CLIENT, KEYED
from benchmarks.spark.following import READER
from benchmarks.spark.reading import JDBC, NONE, OPTIONED, PSYCOPG, PUSHED

AUDITED: Final = 500_000
HEAD_MS: Final = 10.0


def verdicts(rows: Sequence[Row]) -> list[Verdict]:
    """Every goal that the rows say something about."""
    return [*_enqueue(rows), *_jobs(rows), *_events(rows), *_filters(rows), *_audit(rows), *_heads(rows)]


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
    for row in select(rows, "audit", OURS, "each"):
        found = [value / AUDITED for value in row.values]
        goal = f"audit of each rule at least {AUDITED:,} events/s: {row.label}"
        out.append(Verdict("", goal, f"{AUDITED:,} events/s", found, statistics.median(found) >= 1))
    return out


def _heads(rows: Sequence[Row]) -> list[Verdict]:
    out: list[Verdict] = []
    for row in select(rows, "heads", OURS, "p50"):
        found = [value / HEAD_MS for value in row.values]
        goal = f"latestOffset in less than {HEAD_MS:.0f} ms: {row.label}"
        out.append(Verdict("", goal, f"{HEAD_MS:.0f} ms", found, max(found) < 1))
    return out
