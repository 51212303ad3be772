"""Around every change of clocks: the same instants as Debian's cron, walked minute by minute."""

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest

from penstock.core.cron.instants import instants, last_before, newest_instants, next_after
from penstock.core.cron.spec import Cron

ZONES = (
    "Africa/Casablanca",
    "America/Caracas",
    "America/New_York",
    "America/Sao_Paulo",
    "Antarctica/Casey",
    "Antarctica/Troll",
    "Asia/Kathmandu",
    "Asia/Tehran",
    "Australia/Lord_Howe",
    "Europe/Berlin",
    "Pacific/Apia",
    "UTC",
)
EXPRESSIONS = (
    "*/15 * * * *",
    "30 2 * * *",
    "0 3 * * *",
    "0 * * * *",
    "15 1-3 * * *",
    "0 0 1 * *",
    "30 2 * * 0",
    "5 */2 * * *",
    "*/7 2 * * *",
    "59 23 31 12 *",
    "30 0 * * *",
    "*/20 0,23 * * 6,7",
    "0,45 1,2 */2 * 1-6",
    "10-50/20 0-23/3 1-15 * 0",
)
MINUTE = 60
DAY = 24 * 3600
NEAR = 4 * 3600
YEARS = (2000, 2037)
# Days on which nothing but the calendar turns.
TURNS = ((2000, 2, 29), (2023, 2, 28), (2024, 2, 29), (2024, 12, 31), (2037, 3, 1))


def offset(zone: ZoneInfo, second: int) -> int:
    shift = datetime.fromtimestamp(second, zone).utcoffset()
    assert shift is not None
    return int(shift.total_seconds())


def changes(zone: ZoneInfo) -> Iterator[int]:
    """Every second from which the zone's offset is another."""
    first, last = (int(datetime(year, 1, 1, tzinfo=UTC).timestamp()) for year in (YEARS[0], YEARS[1] + 1))
    for before, after in pairwise(range(first, last, DAY // 2)):
        if offset(zone, before) != offset(zone, after):
            while after - before > 1:
                middle = (before + after) // 2
                same = offset(zone, middle) == offset(zone, before)
                before, after = (middle, after) if same else (before, middle)
            yield after


def kinds(zone: ZoneInfo) -> dict[int, int]:
    """The newest change for each shift in minutes."""
    return {(offset(zone, each) - offset(zone, each - 1)) // MINUTE: each for each in changes(zone)}


class Walk:
    """Debian's cron over some minutes of a zone: what it looks up for either kind of job, and when."""

    def __init__(self, zone: ZoneInfo, first: int, last: int) -> None:
        self.wild: list[tuple[int, int]] = []
        self.fixed: list[tuple[int, int]] = []
        virtual = (first + offset(zone, first)) // MINUTE - 1
        for second in range(first, last + 1, MINUTE):
            local = (second + offset(zone, second)) // MINUTE
            ahead = local - virtual
            if 1 < ahead <= 5:
                self.wild += [(second, each) for each in range(virtual + 1, local)]
            self.wild.append((second, local))
            if 0 < ahead <= 180:
                self.fixed += [(second, each) for each in range(virtual + 1, local + 1)]
            elif not -180 < ahead <= 0:
                self.fixed.append((second, local))
            if not -180 < ahead <= 0:
                virtual = local
        minutes = [local for _, local in self.wild + self.fixed]
        self.days = range(min(minutes) // 1440, max(minutes) // 1440 + 1)

    def fires(self, expression: str) -> list[int]:
        """The instants in milliseconds at which a job with this expression runs."""
        minute, hour, *_ = fields = expression.split()
        wanted = {
            (day * 24 + each) * 60 + past
            for day in self.days
            if is_day(date(1970, 1, 1) + timedelta(days=day), fields)
            for each in values(hour, 0, 23)
            for past in values(minute, 0, 59)
        }
        looked_up = self.wild if "*" in (minute[0], hour[0]) else self.fixed
        return sorted({second * 1000 for second, local in looked_up if local in wanted})


def is_day(day: date, fields: list[str]) -> bool:
    _, _, of_month, month, of_week = fields
    if day.month not in values(month, 1, 12):
        return False
    answers = (
        day.day in values(of_month, 1, 31),
        bool({day.isoweekday(), day.isoweekday() % 7} & values(of_week, 0, 7)),
    )
    return all(answers) if "*" in (of_month[0], of_week[0]) else any(answers)


def values(field: str, low: int, high: int) -> set[int]:
    found: set[int] = set()
    for part in field.split(","):
        ends, _, step = part.partition("/")
        first, _, last = f"{low}-{high}".partition("-") if ends == "*" else ends.partition("-")
        found |= set(range(int(first), int(last or first) + 1, int(step or 1)))
    return found


@pytest.mark.parametrize("name", ZONES)
def test_instants_are_those_of_debians_cron_around_every_change(name: str) -> None:
    zone = ZoneInfo(name)
    turns = [int(datetime(*day, 12, tzinfo=UTC).timestamp()) for day in TURNS]

    for change in [*changes(zone), *turns]:
        first, last = change - DAY // 2, change + DAY
        walk = Walk(zone, first, last)
        for expression in EXPRESSIONS:
            spec = Cron(expression, name)
            expected = walk.fires(expression)
            where = f"{spec} around {datetime.fromtimestamp(change, zone)}"

            assert instants(spec, first * 1000 - 1, last * 1000, 3000) == expected, where
            near = [each for each in expected if abs(each // 1000 - change) < NEAR]
            back = newest_instants(spec, (change - NEAR) * 1000, (change + NEAR) * 1000 - 1, 3000)
            assert back == near, where


@pytest.mark.parametrize("name", ZONES)
def test_the_next_and_the_last_are_right_from_any_instant_near_a_change(name: str) -> None:
    zone = ZoneInfo(name)
    nearby = [each * 1000 + ms for each in range(-7200, 7201, 1800) for ms in (-1, 0, 60_001)]

    # One of each kind; all of them are walked through above.
    for change in kinds(zone).values():
        walk = Walk(zone, change - 2 * DAY, change + 2 * DAY)
        for expression in EXPRESSIONS:
            spec = Cron(expression, name)
            expected = walk.fires(expression)
            for now in (change * 1000 + each for each in nearby):
                later = [each for each in expected if each > now]
                earlier = [each for each in expected if each < now]
                where = f"{spec} at {now}"

                assert not later or next_after(spec, now) == later[0], where
                assert not earlier or last_before(spec, now) == earlier[-1], where


def test_the_zones_change_their_clocks_in_all_the_odd_ways() -> None:
    shifts = {name: set(kinds(ZoneInfo(name))) for name in ZONES}

    assert shifts["UTC"] == shifts["Asia/Kathmandu"] == set()
    assert shifts["Europe/Berlin"] == shifts["Africa/Casablanca"] == {60, -60}
    assert shifts["Australia/Lord_Howe"] == shifts["America/Caracas"] == {30, -30}
    assert shifts["Antarctica/Troll"] >= {120, -120}
    assert shifts["Antarctica/Casey"] >= {180, -180}
    assert shifts["Pacific/Apia"] >= {24 * 60}
