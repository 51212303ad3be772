"""How long a program waits before it repeats a call that got no answer: a growing pause with full jitter."""

from typing import Final

import msgspec

from penstock.core.retry import Uniform

_MOST_DOUBLINGS: Final = 20


class RetryPause(msgspec.Struct, frozen=True):
    """The pause between two calls of one caller, in seconds: up to `first` at first, doubled up to `longest`.

    Chance spreads callers over the whole pause: those that lost a server together do not return together.
    """

    first: float
    longest: float

    def after(self, failures: int, uniform: Uniform) -> float:
        """Seconds to wait after so many failures in a row; 0 failures give a pause of up to `first`.

        >>> RetryPause(0.1, 3.0).after(2, lambda low, high: high)
        0.4
        """
        return uniform(0, min(self.longest, self.first * 2 ** min(failures, _MOST_DOUBLINGS)))
