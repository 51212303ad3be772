"""Telling why calls fail, and not each time that they do."""

from typing import Final

MOST: Final = 5
"""RepeatedFailures told of one outage: a message that differs each time must not fill the log."""


class RepeatedFailures:
    """Why calls in a row failed. A server may first hang up, and say only at the next call what is wrong.

    >>> reasons = RepeatedFailures()
    >>> [reasons.is_new(OSError(said)) for said in ("cut off", "cut off", "locked out")]
    [True, False, True]
    """

    def __init__(self) -> None:
        self._told: set[str] = set()

    def is_new(self, error: Exception | str) -> bool:
        """True once for each reason: it is to be told."""
        said = str(error)
        if said in self._told or len(self._told) >= MOST:
            return False
        self._told.add(said)
        return True

    def over(self) -> bool:
        """A call went through; True when there had been failures."""
        had = bool(self._told)
        self._told.clear()
        return had
