"""Where in the indexes of a queue nothing can be any more, so that claims need not walk over what is gone.

PostgreSQL leaves the index entries of jobs that were claimed or settled until vacuum comes, which an old
snapshot can hold back for hours. A claim that starts behind them costs the same then as on a fresh table.
"""

import time
from typing import Final

import msgspec

TIERS: Final = range(9, -1, -1)
LOWEST: Final = -(1 << 63)
HIGHEST: Final = (1 << 63) - 1
PEEK_SECONDS: Final = 0.2
FULL_SECONDS: Final = 10.0
LATE_MS: Final = 2_000
"""How long a delayed job may take from its look at the clock to its commit; FULL_SECONDS help if longer."""


class Probe(msgspec.Struct, frozen=True):
    """A place that was taken, and the number that no transaction had yet when it was seen."""

    place: int
    xmax: int


class Hints:
    """What one process knows of the places of one queue's jobs.

    A place at the back, once left, never comes back: jobs that wait again get new places, or negative ones at
    the front, which are always looked at. What may still appear is the place of a transaction that is not
    through. So a floor is moved in two looks: the first notes the newest place known and the next transaction
    number; once a later look finds all transactions before that number ended, nothing can appear up to that
    place, and the floor goes up to it or to the first job that this look finds waiting.
    """

    def __init__(self) -> None:
        self.floors = dict.fromkeys(TIERS, 0)
        self.newest = 0
        self._probe: Probe | None = None
        self._peek_at = 0.0
        self._full_at = 0.0
        self._deadline = 0
        self._due = 0

    def spans(self) -> tuple[list[int], list[int], list[int]]:
        """Where to look, in claim order: per tier the front, then the back from its floor on."""
        tiers = [tier for tier in TIERS for _ in range(2)]
        lows = [low for tier in TIERS for low in (LOWEST, self.floors[tier])]
        return tiers, lows, [-1, HIGHEST] * len(TIERS)

    def times(self) -> tuple[int, int]:
        """Before which deadline there is no lease, before which time no delayed job; now and then LOWEST."""
        if time.monotonic() - self._full_at > FULL_SECONDS:
            self._full_at = time.monotonic()
            return LOWEST, LOWEST
        return self._deadline, self._due

    def saw(self, now: int, due: int | None, *, is_late: bool) -> None:
        """Note what the newest look found."""
        if not is_late:
            self._deadline = now
        self._due = (now if due is None else min(due, now)) - LATE_MS

    def wants_peek(self, place: int) -> bool:
        """True when it is time for another look, after a job at this place was claimed."""
        self.newest = max(self.newest, place)
        if time.monotonic() - self._peek_at < PEEK_SECONDS:
            return False
        self._peek_at = time.monotonic()
        return True

    def peeked(self, newest: int, xmin: int, xmax: int, firsts: list[int | None]) -> None:
        """Move the floors, if the look before this one allows it. `newest` was known before this look."""
        probe = self._probe
        if probe is not None and xmin < probe.xmax:
            return
        if probe is not None:
            for tier, first in zip(TIERS, firsts, strict=True):
                floor = probe.place if first is None else min(first - 1, probe.place)
                self.floors[tier] = max(self.floors[tier], floor)
        self._probe = Probe(newest, xmax)
