"""What holds when a store's clock is set: what is waited out, when a lease has ended, what a fence is."""

from typing import Final

import msgspec

STEP_MS: Final = 60_000
"""A clock that went back by up to this is waited out; by more, it was set and is followed."""
STEP_US: Final = STEP_MS * 1_000
LONGEST_LEASE_MS: Final = 3_600_000
"""Counts as the duration of a lease whose claim did not keep it: one of an earlier version."""
FLOOR_US: Final = 3_600_000_000
"""A floor for fences that lies further above the store's time is ignored."""
FENCE_LIMIT: Final = 1 << 53
"""Every fence is lower, so that each number of JSON and Lua can hold it."""


class ClockStep(msgspec.Struct, frozen=True):
    """The store's clock was set back: at `at`, by the new time, it was `back_ms` behind the time before."""

    at: int
    back_ms: int

    def holds_back(self, now: int) -> bool:
        """True while the clock has not reached the time from before the step."""
        return now < self.at + self.back_ms


def time_after(last_us: int, clock_us: int) -> int:
    """The time to use when the newest one used was `last_us` and the clock now says `clock_us`.

    >>> time_after(100_000_000, 41_000_000), time_after(100_000_000, 39_000_000)
    (100000000, 39000000)
    """
    return last_us if 0 < last_us - clock_us <= STEP_US else clock_us


def has_ended(deadline: int | None, lease_ms: int | None, now: int) -> bool:
    """True when a lease ran out, or when its deadline is one of a time that the clock was set back from.

    >>> has_ended(130_000, 30_000, 100_000), has_ended(191_000, 30_000, 100_000)
    (False, True)
    """
    if deadline is None or deadline <= now:
        return True
    return deadline > now + (LONGEST_LEASE_MS if lease_ms is None else lease_ms) + STEP_MS


def next_fence(last: int, now_us: int, floor_us: int = 0) -> int:
    """The fence of a new lease. A floor too far above the store's time counts for nothing.

    >>> next_fence(7, 5), next_fence(7, 50), next_fence(7, 50, 60), next_fence(7, 50, 50 + FLOOR_US + 1)
    (8, 50, 60, 50)
    """
    floor = 0 if is_floor_ignored(now_us, floor_us) else floor_us
    return min(max(last + 1, now_us, floor), FENCE_LIMIT - 1)


def is_floor_ignored(now_us: int, floor_us: int) -> bool:
    """True for a floor that lies too far above the store's time."""
    return floor_us > now_us + FLOOR_US


def stepped(last_us: int, now_us: int, known: ClockStep | None = None) -> ClockStep | None:
    """The newest step after `now_us` was used where `last_us` was the newest time before; None without any.

    While the clock has not caught up with an earlier step, that one counts along.

    >>> stepped(100_000_000, 39_000_000), stepped(100_000_000, 100_000_000)
    (ClockStep(at=39000, back_ms=61000), None)
    """
    if last_us - now_us <= STEP_US:
        return known
    now, before = now_us // 1000, last_us // 1000
    if known is not None:
        before = max(before, known.at + known.back_ms)
    return ClockStep(now, before - now)
