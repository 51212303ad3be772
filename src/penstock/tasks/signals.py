"""What a handler raises to steer its job."""


class Signal(Exception):
    """A handler's word about what should happen next; not an error."""


class Retry(Signal):
    """Try again, after so many seconds if given, else after the policy's delay. Uses an attempt.

    >>> raise Retry(after=20)
    Traceback (most recent call last):
    ...
    penstock.tasks.signals.Retry: retry after 20 s
    """

    def __init__(self, after: float | None = None, *, reason: str | None = None) -> None:
        self.after = after
        self.reason = reason
        super().__init__(reason or ("retry" if after is None else f"retry after {after} s"))


class Snooze(Signal):
    """Come back after so many seconds. Uses no attempt."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        super().__init__(f"snooze for {seconds} s")


class Fail(Signal):
    """End as failed: do not try again."""

    def __init__(self, reason: str | None = None) -> None:
        self.reason = reason
        super().__init__(reason or "failed")


class Cancel(Signal):
    """End as cancelled."""

    def __init__(self, reason: str | None = None) -> None:
        self.reason = reason
        super().__init__(reason or "cancelled")
