"""What queues did over some time."""

from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import Meta

from penstock.core.stats import LONGEST_SINCE_MS, QueueStats, Stats
from penstock.service.wire.times import moment

SinceSeconds = Annotated[
    float, Meta(gt=0, le=LONGEST_SINCE_MS / 1000, description="Length of the time in seconds, up to 30 days")
]


class StatsQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How far back to look. More than six hours are told by the hour, less by the minute."""

    since: SinceSeconds = 86_400.0


class StatsPointView(msgspec.Struct, frozen=True):
    """What happened in a minute, or in an hour, that begins at `at`."""

    at: datetime
    stats: Stats


class StatsGapView(msgspec.Struct, frozen=True):
    """A time of which events are missing: they were trimmed or lost before they were counted."""

    since: datetime
    until: datetime


class QueueStatsView(msgspec.Struct, frozen=True, kw_only=True):
    """What happened in a queue: in all, by task, and over time. Times are milliseconds, within 1/32.

    A point is there for each span of `span_seconds` in which something happened.
    """

    queue: str
    since: datetime
    span_seconds: int
    total: Stats
    tasks: dict[str, Stats]
    points: list[StatsPointView]
    gaps: list[StatsGapView]


class QueueStatsList(msgspec.Struct, frozen=True):
    """What happened in each queue that the token can read, by name."""

    queues: list[QueueStatsView]


def stats_view(found: QueueStats) -> QueueStatsView:
    """As it goes out."""
    return QueueStatsView(
        queue=found.queue,
        since=moment(found.since),
        span_seconds=found.span_ms // 1000,
        total=found.total,
        tasks=found.tasks,
        points=[StatsPointView(moment(each.at), each.stats) for each in found.points],
        gaps=[StatsGapView(moment(gap.since), moment(gap.until)) for gap in found.gaps],
    )
