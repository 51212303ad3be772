"""What a handler raises to steer its job."""

from datetime import timedelta


class Signal(Exception):
    """What a handler raises to say what should happen next; not an error."""


class Retry(Signal):
    """Try again, after so many seconds or a timedelta, else after the policy's delay. Uses an attempt.

    >>> raise Retry(after=20)
    Traceback (most recent call last):
    ...
    penstock.tasks.signals.Retry: retry after 20 s
    """

    def __init__(self, after: float | timedelta | None = None, *, reason: object = None) -> None:
        self.after = None if after is None else _seconds(after)
        self.reason = reason
        super().__init__(reason or ("retry" if after is None else f"retry after {self.after} s"))


class Snooze(Signal):
    """Come back after so many seconds, or a timedelta. Uses no attempt."""

    def __init__(self, seconds: float | timedelta) -> None:
        self.seconds = _seconds(seconds)
        super().__init__(f"snooze for {self.seconds} s")


class Fail(Signal):
    """End as failed: do not try again. The text of the reason is kept as the job's error."""

    def __init__(self, reason: object = None) -> None:
        self.reason = reason
        super().__init__(reason or "failed")


class Cancel(Signal):
    """End as cancelled. The reason is logged."""

    def __init__(self, reason: object = None) -> None:
        self.reason = reason
        super().__init__(reason or "cancelled")


def _seconds(delay: float | timedelta) -> float:
    if not isinstance(delay, timedelta):
        return delay
    seconds = delay.total_seconds()
    return int(seconds) if seconds.is_integer() else seconds
