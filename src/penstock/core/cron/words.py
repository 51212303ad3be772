"""A spec in plain words."""

from typing import Final

from penstock.core.cron.spec import Cron, Spec

_MONTHS: Final = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip
_DAYS: Final = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_UNITS: Final = ((86_400_000, "day"), (3_600_000, "hour"), (60_000, "minute"), (1_000, "second"))
_MOST_TIMES: Final = 6
"""More times a day than this are not read but counted; the expression is shorter."""

Numbers = list[int] | None
"""The values of a field, None for all of them."""


def describe(spec: Spec) -> str:
    """When it runs, as one would say it; the expression itself where words would be longer.

    >>> describe(Cron.of("30 3 * * *", "Europe/Berlin"))
    'every day at 03:30 (Europe/Berlin)'
    """
    if not isinstance(spec, Cron):
        return _interval(spec.every_ms)
    minute, hour, day, month, weekday = spec.fields
    days = _days(day, month, weekday)
    times = _fixed(minute, hour)
    if days is None:
        return f"{spec.expression} ({spec.zone})"
    if times is not None:
        return f"{f'at {times} {days}' if days else f'every day at {times}'} ({spec.zone})"
    times = _repeated(minute, hour)
    if times is None:
        return f"{spec.expression} ({spec.zone})"
    # Zones differ by whole quarters of an hour: minutes that suit those need no zone.
    free = not days and hour == "*" and minute in {"*", "*/5", "*/15"}
    return f"{times} {days}".strip() + ("" if free else f" ({spec.zone})")


def _interval(every_ms: int) -> str:
    for size, unit in _UNITS:
        # Days in the calendar may have 23 hours; an interval of 24 should not look like one.
        if every_ms % size == 0 and not (unit == "day" and every_ms == size):
            return _each(every_ms // size, unit)
    return f"every {every_ms / 1000:g} seconds"


def _each(count: int, unit: str) -> str:
    return f"every {unit}" if count == 1 else f"every {count} {unit}s"


def _fixed(minute: str, hour: str) -> str | None:
    """Times of day, if they are few."""
    minutes, hours = _numbers(minute, 0, 59), _numbers(hour, 0, 23)
    if not minutes or not hours or len(minutes) * len(hours) > _MOST_TIMES:
        return None
    return _and([f"{each:02}:{past:02}" for each in hours for past in minutes])


def _repeated(minute: str, hour: str) -> str | None:
    """A rhythm that repeats within the day, all day or between two hours."""
    every_hour, step = _step(hour, 24), _step(minute, 60)
    if step is not None:
        each = _each(step, "minute")
        if hour == "*":
            return each
        hours = _numbers(hour, 0, 23)
        if hours and hours == list(range(hours[0], hours[-1] + 1)):
            return f"{each} from {hours[0]:02}:00 to {hours[-1]:02}:{60 - step:02}"
        return None
    minutes = _numbers(minute, 0, 59)
    if every_hour is None or not minutes or len(minutes) > _MOST_TIMES:
        return None
    past = "" if minutes == [0] else f" at {_and([f':{each:02}' for each in minutes])}"
    return f"{_each(every_hour, 'hour')}{past}"


def _days(day: str, month: str, weekday: str) -> str | None:
    """The days as words that follow a time: nothing for every day, None where words fail."""
    months = [] if month == "*" else _numbers(month, 1, 12, _MONTHS)
    if months is None:
        return None
    names = [_MONTHS[each - 1] for each in months]
    if day == weekday == "*":
        return f"every day in {_and(names)}" if names else ""
    if weekday == "*":
        return _days_of_month(day, names)
    days = _numbers(weekday, 0, 7, _DAYS, first=0) if day == "*" else None
    if not days:
        return None
    within = f" in {_and(names)}" if names else ""
    return f"on {_weekdays({each % 7 for each in days})}{within}"


def _days_of_month(day: str, months: list[str]) -> str | None:
    if day == "L":
        return f"on the last day of {_and(months) or 'every month'}"
    days = _numbers(day, 1, 31)
    if not days or len(days) > _MOST_TIMES:
        return None
    if len(days) == len(months) == 1:
        return f"on {days[0]} {months[0]}"
    word = "day" if len(days) == 1 else "days"
    return f"on {word} {_and([str(each) for each in days])} of {_and(months) or 'every month'}"


def _weekdays(days: set[int]) -> str:
    if days == {1, 2, 3, 4, 5}:
        return "weekdays"
    if days == {0, 6}:
        return "weekends"
    # Weeks begin on Monday here, as they do in ISO 8601.
    return _and([f"{_DAYS[each]}s" for each in sorted(days, key=lambda each: (each + 6) % 7)])


def _step(field: str, size: int) -> int | None:
    """The distance between values that are even over the whole range."""
    if field == "*":
        return 1
    text = field.removeprefix("*/")
    even = text != field and text.isdecimal() and size % int(text) == 0
    return int(text) if even else None


def _numbers(field: str, low: int, high: int, names: tuple[str, ...] = (), first: int = 1) -> Numbers:
    """The values of lists and ranges; None for wildcards, steps and all that is rarer."""
    short = {name[:3].upper(): index for index, name in enumerate(names, start=first)}
    values: set[int] = set()
    for part in field.upper().split(","):
        ends = [short.get(each, int(each) if each.isdecimal() else -1) for each in part.split("-")]
        if not all(low <= each <= high for each in ends):
            return None
        values.update(range(ends[0], ends[-1] + 1))
    return sorted(values)


def _and(words: list[str]) -> str:
    return " and ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))
