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

LAST_MS: Final = 250_246_627_200_000
"""The first of January 9900 in UTC: no instant is after it, so that no date can overflow."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
_NOTHING: Final = timedelta(0)
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
    sign, once = -1 if back else 1, cron.is_fixed
    start = _at(start_ms).astimezone(zone).replace(tzinfo=None)
    before, after = _offsets(start, zone)
    # In an hour that comes twice, times earlier on the wall may still come, and later ones be over.
    start -= sign * max(before - after, _NOTHING)
    repeated: deque[int] = deque()
    last: int | None = None
    for local in cron.local_times(start, back=back):
        # Counted along the walk, so that one comparison serves both directions.
        times = [sign * each for each in _real(local, zone, once=once)][::sign]
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
    before, after = _offsets(local, zone)
    if before == after or (before > after and once):
        return [_milliseconds(local - before)]
    if before > after:
        return [_milliseconds(local - before), _milliseconds(local - after)]
    if once and after - before < _DEBIAN_LIMIT:
        return [_jump(local, zone)]
    return []


def _offsets(local: datetime, zone: ZoneInfo) -> tuple[timedelta, timedelta]:
    """The offsets before and after a change that skips or repeats this local time; else the same twice."""
    before = local.replace(tzinfo=zone, fold=0).utcoffset()
    after = local.replace(tzinfo=zone, fold=1).utcoffset()
    return before or _NOTHING, after or _NOTHING


def _jump(skipped: datetime, zone: ZoneInfo) -> int:
    """The instant at which clocks jumped over this local time."""
    before, after = _offsets(skipped, zone)
    # Read with the new offset it lies before the jump, with the old one not before it.
    low, high = _milliseconds(skipped - after), _milliseconds(skipped - before)
    while high - low > 1:
        middle = (low + high) // 2
        if _at(middle).astimezone(zone).utcoffset() == after:
            high = middle
        else:
            low = middle
    return high


def _at(instant_ms: int) -> datetime:
    return _EPOCH + instant_ms * _MILLISECOND


def _milliseconds(utc: datetime) -> int:
    return (utc - _EPOCH.replace(tzinfo=None)) // _MILLISECOND
