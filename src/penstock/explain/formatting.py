"""Times, rate limits and held-back events as text for people."""

from datetime import UTC, datetime
from typing import Final

from penstock.stores.values import Holdup, KeyInfo

UNITS: Final = {"s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
"""Milliseconds of each unit of time in which a rate can be written."""


def local(at: int | None) -> str | None:
    """Unix milliseconds as ISO 8601 in the local time zone."""
    if at is None:
        return None
    return datetime.fromtimestamp(at / 1000, UTC).astimezone().isoformat(timespec="milliseconds")


def utc(at: int | None) -> str | None:
    """Unix milliseconds as RFC 3339, for programs."""
    if at is None:
        return None
    return datetime.fromtimestamp(at / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def span(ms: int) -> str:
    """A duration in its one or two largest units.

    >>> span(750), span(12_000), span(200_000), span(7_500_000), span(266_400_000)
    ('750 ms', '12 s', '3 min 20 s', '2 h 5 min', '3 d 2 h')
    """
    ms = max(0, ms)
    if ms < 1000:
        return f"{ms} ms"
    seconds = ms // 1000
    for size, unit, small_size, small in (
        (86_400, "d", 3_600, "h"),
        (3_600, "h", 60, "min"),
        (60, "min", 1, "s"),
    ):
        if seconds >= size:
            rest = seconds % size // small_size
            return f"{seconds // size} {unit}" + (f" {rest} {small}" if rest else "")
    return f"{ms / 1000:.1f} s" if ms < 10_000 and ms % 1000 else f"{seconds} s"


def rate_hold_text(key: KeyInfo, now: int) -> str | None:
    """Until when a rate limit holds a key back, as text; None if it does not."""
    if key.held_until is None or key.held_until <= now:
        return None
    return f"{local(key.held_until)} (in {span(key.held_until - now)})"


def holdup_text(held: Holdup) -> str:
    """Whose transaction holds back the readers of events, and for how long."""
    since = "" if held.age_ms is None else f" for {span(held.age_ms)}"
    return f"held back{since} by a transaction of {held.who or 'an unknown client'}"
