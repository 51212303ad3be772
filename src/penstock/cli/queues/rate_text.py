"""Parsing rates as people write them, such as 5/s."""

import re
from typing import Final

from penstock.core.errors import OptionError
from penstock.core.limits import Rate, check_rate
from penstock.explain.formatting import UNITS
from penstock.settings import seconds

_TEXT: Final = re.compile(r"\s*(\d+)\s*/\s*(.+?)\s*")
WANTED: Final = "a number per time, such as 5/s, 100/m or 1/10s"


def rate_of(option: str, text: str | None, burst: int | None = None) -> Rate | None:
    """The rate in text such as 5/s or 1/10s; OptionError names the option.

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
        per_ms = UNITS.get(unit.lower()) or round(seconds(option, unit) * 1000)
    except OptionError:
        raise OptionError(option, text, WANTED) from None
    return check_rate(option.removeprefix("--"), Rate(int(count), per_ms, 1 if burst is None else burst))
