"""Rates as people write and read them."""

import re
from typing import Final

from penstock.cli.output import span
from penstock.core.errors import OptionError
from penstock.core.limits import Rate, check_rate
from penstock.settings import seconds

_UNITS: Final = {"s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_TEXT: Final = re.compile(r"\s*(\d+)\s*/\s*(.+?)\s*")
WANTED: Final = "so many in a time, such as 5/s, 100/m or 1/10s"


def rate_of(option: str, text: str | None, burst: int | None = None) -> Rate | None:
    """The rate behind text such as 5/s or 1/10s; OptionError names the option.

    >>> rate_of("--rate", "5/s", 3)
    Rate(count=5, per_ms=1000, burst=3)
    >>> rate_of("--rate", "1/10s")
    Rate(count=1, per_ms=10000, burst=1)
    """
    if text is None:
        return None
    parts = _TEXT.fullmatch(text)
    if parts is None:
        raise OptionError(option, text, WANTED)
    count, unit = parts.groups()
    try:
        per_ms = _UNITS.get(unit.lower()) or round(seconds(option, unit) * 1000)
    except OptionError:
        raise OptionError(option, text, WANTED) from None
    return check_rate(option.removeprefix("--"), Rate(int(count), per_ms, 1 if burst is None else burst))


def rate_text(rate: Rate) -> str:
    """The rate in the shortest words that say it exactly.

    >>> rate_text(Rate.per_second(5)), rate_text(Rate(1, 10_000, 2)), rate_text(Rate(7, 3_000))
    ('5/s', '6/min, 2 at once', '7 in 3 s')
    """
    burst = f", {rate.burst} at once" if rate.burst > 1 else ""
    for unit in ("s", "min", "h", "d"):
        count, rest = divmod(rate.count * _UNITS[unit], rate.per_ms)
        if not rest:
            return f"{count}/{unit}{burst}"
    return f"{rate.count} in {span(rate.per_ms)}{burst}"
