"""The nominal instants of a spec, with Debian cron's rule for the days when clocks change.

Jobs with a fixed hour and minute run once: where their time is skipped, right after the jump; where
it comes twice, the first time. A jump of three hours or more is no daylight saving but another zone:
what it skips is gone. Jobs with a wildcard in hour or minute run whenever the clock on the wall says so.
"""

from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import dropwhile, islice, takewhile
from typing import Final
from zoneinfo import ZoneInfo

from penstock.core.cron.spec import Cron, Spec

LAST_YEAR: Final = 9900
LAST_MS: Final = 250_246_022_400_000
"""The first of January 9900 in UTC: no instant is after it, so that no date can overflow."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
_SECOND: Final = timedelta(seconds=1)
_DEBIAN_LIMIT: Final = timedelta(hours=3)


def next_after(spec: Spec, instant_ms: int) -> int | None:
    """The first instant after this one; None when there is none any more."""
    return next(_ahead(spec, instant_ms), None)


def last_before(spec: Spec, instant_ms: int) -> int | None:
    """The last instant before this one; None when there is none since 1970, or since the anchor."""
    return next(_behind(spec, instant_ms), None)


def instants(spec: Spec, after_ms: int, until_ms: int, limit: int) -> list[int]:
    """The oldest `limit` instants after `after_ms`, up to and with `until_ms`."""
    return list(islice(takewhile(lambda each: each <= until_ms, _ahead(spec, after_ms)), max(limit, 0)))


def newest_instants(spec: Spec, after_ms: int, until_ms: int, limit: int) -> list[int]:
    """The newest `limit` instants after `after_ms`, up to and with `until_ms`, the oldest first."""
    found = takewhile(lambda each: each > after_ms, _behind(spec, until_ms + 1))
    return list(islice(found, max(limit, 0)))[::-1]


def next_runs(spec: Spec, now_ms: int, count: int) -> list[datetime]:
    """The next instants as times in the zone of the spec, UTC for an interval."""
    zone = ZoneInfo(spec.zone) if isinstance(spec, Cron) else UTC
    return [_at(each).astimezone(zone) for each in instants(spec, now_ms, LAST_MS, count)]


def _ahead(spec: Spec, instant_ms: int) -> Iterator[int]:
    """Every instant after this one."""
    start = max(instant_ms, -1)
    if start >= LAST_MS:
        return iter(())
    if isinstance(spec, Cron):
        found = dropwhile(lambda each: each <= start, _walk(spec, start, back=False))
        return takewhile(lambda each: each <= LAST_MS, found)
    steps = max(0, (start - spec.anchor_ms) // spec.every_ms + 1)
    return iter(range(spec.anchor_ms + steps * spec.every_ms, LAST_MS + 1, spec.every_ms))


def _behind(spec: Spec, instant_ms: int) -> Iterator[int]:
    """Every instant before this one, the newest first."""
    start = min(instant_ms, LAST_MS + 1)
    if start <= 0:
        return iter(())
    if isinstance(spec, Cron):
        found = dropwhile(lambda each: each >= start, _walk(spec, start, back=True))
        return takewhile(lambda each: each >= 0, found)
    steps = (start - 1 - spec.anchor_ms) // spec.every_ms
    return iter(range(spec.anchor_ms + steps * spec.every_ms, spec.anchor_ms - 1, -spec.every_ms))


def _walk(cron: Cron, start_ms: int, *, back: bool) -> Iterator[int]:
    """Instants from about `start_ms` on, each once and in order; the first ones may lie on its other side."""
    zone = ZoneInfo(cron.zone)
    sign = -1 if back else 1
    start = _at(start_ms).astimezone(zone)
    # In an hour that comes twice, times earlier on the wall may still come, and later ones be over.
    start = start.replace(tzinfo=None) - sign * max(_shift(start, zone), timedelta(0))
    repeated: deque[int] = deque()
    last: int | None = None
    for local in cron.local_times(start, back=back):
        # Counted along the walk, so that one comparison serves both directions.
        times = [sign * each for each in _real(local, zone, once=cron.is_fixed)][::sign]
        while repeated and times and repeated[0] < times[0]:
            yield sign * repeated.popleft()
        # Of all the times that a jump skips only one comes right after it.
        if times and times[0] != last:
            last = times[0]
            yield sign * last
        repeated.extend(times[1:])
    yield from (sign * each for each in repeated)


def _real(local: datetime, zone: ZoneInfo, *, once: bool) -> list[int]:
    """The instants at which the clock on the wall shows this time: none, one or two."""
    first = local.replace(tzinfo=zone, fold=0)
    shift = _shift(first, zone)
    if not shift:
        return [_milliseconds(first)]
    if shift > timedelta(0):
        return (
            [_milliseconds(first)] if once else [_milliseconds(first), _milliseconds(first.replace(fold=1))]
        )
    if once and -shift < _DEBIAN_LIMIT:
        return [_jump(first)]
    return []


def _shift(time: datetime, zone: ZoneInfo) -> timedelta:
    """By how much clocks are set back around a local time; less than nothing where it is skipped."""
    before = time.replace(tzinfo=zone, fold=0).utcoffset() or timedelta(0)
    after = time.replace(tzinfo=zone, fold=1).utcoffset() or timedelta(0)
    return before - after


def _jump(skipped: datetime) -> int:
    """The instant at which clocks jumped over this local time."""
    new = skipped.replace(fold=1).utcoffset()
    # Read with the new offset it lies before the jump, with the old one after it.
    low, high = skipped.replace(fold=1).astimezone(UTC), skipped.astimezone(UTC)
    while high - low > _SECOND:
        middle = low + (high - low) // _SECOND // 2 * _SECOND
        if middle.astimezone(skipped.tzinfo).utcoffset() == new:
            high = middle
        else:
            low = middle
    return _milliseconds(high)


def _at(instant_ms: int) -> datetime:
    return _EPOCH + instant_ms * _MILLISECOND


def _milliseconds(time: datetime) -> int:
    return (time.astimezone(UTC) - _EPOCH) // _MILLISECOND
