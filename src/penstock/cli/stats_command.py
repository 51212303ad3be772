"""`penstock stats`: what queues did over the last hours, from their rollups."""

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final

import msgspec
import typer

from penstock.cli.command_context import CommandContext
from penstock.cli.output import span, utc, without_none
from penstock.client.queue_stats import read_stats
from penstock.core.errors import OptionError
from penstock.core.stats import LONGEST_SINCE_MS, Percentiles, QueueStats, Stats
from penstock.explain.formatting import holdup_text
from penstock.settings import seconds
from penstock.stores.protocol import HasHoldups
from penstock.stores.values import Holdup

BARS: Final = "▁▂▃▄▅▆▇█"
WIDTH: Final = 48
"""Characters of a sparkline at most."""


async def stats(
    context: CommandContext,
    queue: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Only this queue, such as mail", show_default="all queues"),
    ] = None,
    since: Annotated[
        str, typer.Option(metavar="TIME", help="Length of the time to show, such as 90m or 7d, at most 30d")
    ] = "24h",
) -> None:
    """Show what queues did: jobs in and out, failures, retries, and how long jobs waited and ran.

    The numbers are folded from the event log by the minute (kept for 48 h) and by the hour (30 days).
    More than 6 h are shown by the hour. Percentiles are off by at most 1/32.
    """
    since_ms = round(seconds("--since", since) * 1000)
    if not 0 < since_ms <= LONGEST_SINCE_MS:
        raise OptionError("--since", since, "a time longer than 0 and of at most 30d")
    async with context.store() as store:
        found = [await read_stats(store, info.queue, since_ms) for info in await context.queues(store, queue)]
        holdup = await store.holdup() if isinstance(store, HasHoldups) else None
        now = await store.clock.now()
    context.out.documents(_document(each, holdup) for each in found)
    for number, each in enumerate(found):
        if number:
            context.out.line()
        _print(context, each, now)
    if not found:
        context.out.line("no queues")
    elif holdup is not None and holdup.age_ms is not None and holdup.age_ms >= 1_000:
        context.out.line(f"newer events cannot be read yet: {holdup_text(holdup)}")


def _print(context: CommandContext, found: QueueStats, now: int) -> None:
    total = found.total
    context.out.fields(
        [
            ("queue", found.queue),
            ("since", utc(found.since)),
            ("in", _with_line(found, total.enqueued, lambda each: each.enqueued, now)),
            ("out", _with_line(found, total.ended, lambda each: each.ended, now)),
            (
                "failed or dead",
                _with_line(found, total.failed + total.dead, lambda each: each.failed + each.dead, now),
            ),
            ("retried", _with_line(found, total.retried, lambda each: each.retried, now)),
            ("wait p95", _time_line(found, total.wait, lambda each: each.wait, now)),
            ("run p95", _time_line(found, total.run, lambda each: each.run, now)),
            *(
                (
                    "gap",
                    f"no events from {utc(gap.since) if gap.since else 'the beginning'} to {utc(gap.until)}",
                )
                for gap in found.gaps
            ),
        ]
    )
    if found.tasks:
        context.out.table(
            [
                "task",
                "in",
                "completed",
                "failed",
                "dead",
                "retried",
                "wait p50",
                "wait p95",
                "run p50",
                "run p95",
            ],
            (
                (
                    task,
                    each.enqueued,
                    each.completed,
                    each.failed,
                    each.dead,
                    each.retried,
                    *(_short(times, part) for times in (each.wait, each.run) for part in ("p50", "p95")),
                )
                for task, each in found.tasks.items()
            ),
            right=frozenset(
                {"in", "completed", "failed", "dead", "retried", "wait p50", "wait p95", "run p50", "run p95"}
            ),
            drop=["wait p50", "run p50", "retried"],
        )


def sparkline(values: Sequence[float]) -> str:
    """The values as a line of bars, the highest of which is full; neighbours are joined where it is too long.

    >>> sparkline([0, 1, 4, 8])
    '▁▂▅█'
    """
    joined = -(-len(values) // WIDTH) or 1
    parts = [max(values[at : at + joined]) for at in range(0, len(values), joined)]
    top = max(parts, default=0)
    return "".join(BARS[round(each / top * (len(BARS) - 1)) if top else 0] for each in parts)


def _with_line(found: QueueStats, many: int, of: Callable[[Stats], int], now: int) -> str:
    return f"{many:<9} {sparkline(_series(found, of, now))}"


def _time_line(
    found: QueueStats, times: Percentiles | None, of: Callable[[Stats], Percentiles | None], now: int
) -> str | None:
    if times is None:
        return None

    def p95(each: Stats) -> int:
        there = of(each)
        return 0 if there is None else there.p95

    return f"{span(times.p95):<9} {sparkline(_series(found, p95, now))}"


def _series(found: QueueStats, of: Callable[[Stats], int], now: int) -> list[int]:
    """A value for each span since the beginning, 0 where nothing happened."""
    values = [0] * ((now - found.since) // found.span_ms + 1)
    for point in found.points:
        at = (point.at - found.since) // found.span_ms
        if 0 <= at < len(values):
            values[at] = of(point.stats)
    return values


def _short(times: Percentiles | None, part: str) -> str:
    return "" if times is None else span(getattr(times, part))


def _document(found: QueueStats, holdup: Holdup | None) -> dict[str, Any]:
    return without_none(
        queue=found.queue,
        since=utc(found.since),
        until=utc(found.until) if found.until else None,
        span_ms=found.span_ms,
        total=msgspec.to_builtins(found.total),
        tasks=msgspec.to_builtins(found.tasks),
        points=[{"at": utc(each.at), **msgspec.to_builtins(each.stats)} for each in found.points],
        gaps=[{"since": utc(gap.since), "until": utc(gap.until)} for gap in found.gaps],
        held_back=None if holdup is None else holdup_text(holdup),
    )
