"""What a schedule goes by: a cron expression in a time zone, or an interval."""

import difflib
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

import msgspec
from cronsim import CronSim, CronSimError

from penstock.core.errors import OptionError

MAX_EVERY_MS: Final = 366 * 24 * 3600 * 1000
MAX_EXPRESSION: Final = 200

ALIASES: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}

_FIELDS: Final = (
    ("minute", 59, "0 to 59"),
    ("hour", 23, "0 to 23"),
    ("day of month", 31, "1 to 31, L for the last day or LW for the last weekday"),
    ("month", 12, "1 to 12 or JAN to DEC"),
    (
        "day of week",
        7,
        "0 to 7 or SUN to SAT (0 and 7 are Sunday), 5L for the last Friday, 1#2 for the second Monday",
    ),
)
_STEP: Final = re.compile(r"/(\d+)")
_ONE_VALUE: Final = re.compile(r"(?<![^ ,])(\w+)-\1/\d+(?![^ ,])")
# A leap year and the years to come: what does not match from here on matches never.
_ANY_DAY: Final = datetime(2000, 1, 1, tzinfo=UTC).replace(tzinfo=None)


class Cron(msgspec.Struct, frozen=True, tag="cron"):
    """A cron expression of five fields, read on the clocks of a zone.

    >>> Cron.of("@daily", "Europe/Berlin")
    Cron(expression='0 0 * * *', zone='Europe/Berlin')
    """

    expression: str
    zone: str = "UTC"

    @classmethod
    def of(cls, expression: str, zone: str = "UTC") -> "Cron":
        """Checked: OptionError names the field that cannot be read, or the zone that is not known."""
        return cls(_checked(expression), check_zone("zone", zone))

    @property
    def fields(self) -> list[str]:
        """Minute, hour, day of month, month, day of week."""
        return self.expression.split()

    @property
    def is_fixed(self) -> bool:
        """True when minute and hour are both without a wildcard: such jobs neither miss nor repeat a day."""
        return not any(each.startswith("*") for each in self.fields[:2])

    def local_times(self, start: datetime, *, back: bool = False) -> Iterator[datetime]:
        """The matching times on the wall, as if clocks never changed: after `start`, or before it.

        Ends when fifty years go by without a match.
        """
        return iter(CronSim(self.expression, start, reverse=back))


class Every(msgspec.Struct, frozen=True, tag="every"):
    """An interval: the instants are `anchor_ms`, and every `every_ms` after it.

    >>> Every.of(900)
    Every(every_ms=900000, anchor_ms=0)
    """

    every_ms: int
    anchor_ms: int = 0

    @classmethod
    def of(cls, seconds: float, anchor_ms: int = 0) -> "Every":
        """Checked. Without an anchor the instants are counted from 1970, so that all processes agree."""
        wanted = f"seconds from 1 to {MAX_EVERY_MS // 1000}"
        if isinstance(seconds, bool) or not isinstance(seconds, int | float):
            raise OptionError("every", seconds, wanted)
        if not 1000 <= seconds * 1000 <= MAX_EVERY_MS:
            raise OptionError("every", seconds, wanted)
        if anchor_ms < 0:
            raise OptionError("anchor", anchor_ms, "Unix milliseconds")
        return cls(round(seconds * 1000), anchor_ms)


Spec = Cron | Every


def check_spec(spec: Spec) -> Spec:
    """The same, checked; for one that was not made by `of`."""
    if isinstance(spec, Cron):
        return Cron.of(spec.expression, spec.zone)
    return Every.of(spec.every_ms / 1000, spec.anchor_ms)


def check_zone(field: str, name: object) -> str:
    """The name itself, or OptionError with the names it may have meant."""
    # These are names that the zone files know and IANA does not: the machine's own
    # zone, and copies that count leap seconds.
    known = isinstance(name, str) and not name.startswith(("localtime", "posix", "right/"))
    if isinstance(name, str) and known:
        try:
            return ZoneInfo(name).key
        except (ZoneInfoNotFoundError, ValueError, OSError):
            pass
    near = _near(name) if isinstance(name, str) else []
    hint = f"; near it: {', '.join(near)}" if near else ""
    raise OptionError(field, name, f"an IANA zone such as Europe/Berlin or UTC{hint}")


def _near(name: str) -> list[str]:
    """Known zones spelled like this one, or whose city is."""
    folded: dict[str, str] = {}
    for zone in sorted(available_timezones()):
        folded[zone.casefold()] = zone
        if "/" in zone:
            folded.setdefault(zone.rpartition("/")[2].casefold(), zone)
    # Long texts are slow to compare, and no zone is that long.
    sought = name[:64].casefold().replace(" ", "_")
    close = difflib.get_close_matches(sought, folded, n=6, cutoff=0.75)
    return list(dict.fromkeys(folded[each] for each in close))[:3]


def _checked(expression: object) -> str:
    wanted = "five fields: minute, hour, day of month, month, day of week"
    if not isinstance(expression, str) or len(expression) > MAX_EXPRESSION:
        raise OptionError("cron", expression, wanted)
    text = " ".join(expression.split())
    if text.startswith("@"):
        if text.lower() not in ALIASES:
            raise OptionError("cron", expression, f"one of {', '.join(ALIASES)}, or {wanted}")
        return ALIASES[text.lower()]
    # A range of one value is that value; with a step after it cronsim would go on to the field's end.
    text = _ONE_VALUE.sub(r"\1", text)
    fields = text.split(" ")
    if len(fields) != len(_FIELDS):
        raise OptionError("cron", expression, f"{wanted}; these are {len(fields) if text else 0}")
    for index, found in enumerate(fields):
        _check_field(index, found)
    if not _ever_matches(text):
        raise OptionError("cron", expression, "a date that exists: this one never comes")
    return text


def _check_field(index: int, found: str) -> None:
    name, highest, values = _FIELDS[index]
    if any(int(step) > highest for step in _STEP.findall(found)):
        # "*/90" in the minutes would fire every hour and look like every 90 minutes.
        raise OptionError(
            f"cron {name}", found, f"a step of at most {highest}; use an interval for longer ones"
        )
    alone = ["*"] * len(_FIELDS)
    alone[index] = found
    try:
        CronSim(" ".join(alone), _ANY_DAY)
    except (CronSimError, AssertionError, ValueError):
        raise OptionError(
            f"cron {name}", found, f"*, or numbers, lists, ranges and steps of {values}"
        ) from None


def _ever_matches(text: str) -> bool:
    try:
        return any(True for _ in islice(CronSim(text, _ANY_DAY), 1))
    except CronSimError:
        return False
