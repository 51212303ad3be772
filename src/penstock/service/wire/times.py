"""Times at the edge: RFC 3339 outside, milliseconds inside."""

from datetime import UTC, datetime, timedelta
from typing import Final

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
LAST_MS: Final = 253_402_300_799_999
"""The end of the year 9999."""


def at(ms: int | None) -> datetime | None:
    """The moment of these milliseconds; one that no calendar has is shown as the last one.

    >>> at(1_500)
    datetime.datetime(1970, 1, 1, 0, 0, 1, 500000, tzinfo=datetime.timezone.utc)
    """
    return None if ms is None else moment(ms)


def moment(ms: int) -> datetime:
    """The time as a date, or None where there is none."""
    return _EPOCH + timedelta(milliseconds=min(max(ms, 0), LAST_MS))
