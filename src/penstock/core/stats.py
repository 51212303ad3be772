"""What rollups say in numbers: jobs in and out, failures and retries, and how long jobs waited and ran."""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from penstock.core import sketch
from penstock.core.rollups import HOUR_MS, MINUTE_MS, SPANS, Gap, Row, merge_rows

DEFAULT_SINCE_MS: Final = 24 * HOUR_MS
LONGEST_SINCE_MS: Final = 30 * 24 * HOUR_MS
BY_MINUTE_MS: Final = 6 * HOUR_MS
"""Up to so long a time is told by the minute, a longer one by the hour."""


class Percentiles(msgspec.Struct, frozen=True):
    """Of how many jobs a time is known, and the milliseconds that so many percent of them did not exceed."""

    jobs: int
    p50: int
    p90: int
    p95: int
    p99: int


class Stats(msgspec.Struct, frozen=True, omit_defaults=True):
    """How often each thing happened, and how long jobs waited and ran.

    `retried` has the executions that failed and were tried again, also those that a lease ended.
    """

    enqueued: int = 0
    claimed: int = 0
    completed: int = 0
    failed: int = 0
    dead: int = 0
    cancelled: int = 0
    retried: int = 0
    expired: int = 0
    snoozed: int = 0
    released: int = 0
    wait: Percentiles | None = None
    run: Percentiles | None = None

    @property
    def ended(self) -> int:
        """Jobs that left, in whatever way."""
        return self.completed + self.failed + self.dead + self.cancelled


class StatsPoint(msgspec.Struct, frozen=True):
    """A span of time that begins at `at`."""

    at: int
    stats: Stats


class QueueStats(msgspec.Struct, frozen=True):
    """What happened in a queue since a time: in all, by task, and over time.

    `until` is the time of the newest event that is in it. Of the times in `gaps` events are missing.
    """

    queue: str
    since: int
    until: int
    span_ms: int
    total: Stats
    tasks: dict[str, Stats]
    points: list[StatsPoint]
    gaps: list[Gap]


def span_for(since_ms: int) -> int:
    """By which spans so long a time is told."""
    return MINUTE_MS if since_ms <= BY_MINUTE_MS else HOUR_MS


def stats_of(row: Row) -> Stats:
    """The numbers of a row."""
    counts = row.counts
    # A lease that ran out ends a job or lets it be tried again; what ended is known apart.
    return Stats(
        enqueued=counts.get("enqueue", 0),
        claimed=counts.get("claim", 0),
        completed=counts.get("ended_completed", 0),
        failed=counts.get("ended_failed", 0),
        dead=counts.get("ended_dead", 0),
        cancelled=counts.get("ended_cancelled", 0),
        retried=counts.get("tried_again", 0),
        expired=counts.get("expire", 0),
        snoozed=counts.get("snooze", 0),
        released=counts.get("release", 0),
        wait=_percentiles(row.wait),
        run=_percentiles(row.run),
    )


def summarise(
    queue: str,
    since: int,
    until: int,
    span_ms: int,
    spans: Iterable[tuple[int, Mapping[str, Row]]],
    gaps: Iterable[Gap],
) -> QueueStats:
    """What the rows of spans add up to. Spans in which nothing happened have no point."""
    if span_ms not in SPANS:
        raise ValueError(f"no spans of {span_ms} ms")
    tasks: dict[str, Row] = {}
    points: list[StatsPoint] = []
    for at, rows in spans:
        merge_rows(tasks, rows)
        points.append(StatsPoint(at, stats_of(_sum(rows))))
    return QueueStats(
        queue,
        since,
        until,
        span_ms,
        stats_of(_sum(tasks)),
        {task: stats_of(tasks[task]) for task in sorted(tasks)},
        points,
        [gap for gap in gaps if gap.until >= since],
    )


def _sum(rows: Mapping[str, Row]) -> Row:
    total = Row()
    for row in rows.values():
        total.merge(row)
    return total


def _percentiles(times: Mapping[int, int]) -> Percentiles | None:
    found = [sketch.quantile(times, part) for part in (0.5, 0.9, 0.95, 0.99)]
    known = [each for each in found if each is not None]
    return Percentiles(sum(times.values()), *known) if known else None
