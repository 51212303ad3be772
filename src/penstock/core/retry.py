"""When a job is tried again: backoff, jitter and presets."""

from collections.abc import Callable
from enum import StrEnum
from typing import Final

import msgspec

from penstock.core.errors import OptionError

MAX_DELAY_MS: Final = 7 * 24 * 3600 * 1000
DEFAULT_MAX_ATTEMPTS: Final = 4

Uniform = Callable[[float, float], float]
"""Draws a number between two bounds; passed in, so that decisions can be repeated."""


class Shape(StrEnum):
    """How the delay grows with the attempts."""

    EXPONENTIAL = "exponential"
    LINEAR = "linear"
    FIXED = "fixed"
    LISTED = "listed"


class Jitter(StrEnum):
    """How chance spreads the delays of jobs that failed together."""

    FULL = "full"
    EQUAL = "equal"
    NONE = "none"
    DECORRELATED = "decorrelated"


class Backoff(msgspec.Struct, frozen=True, omit_defaults=True):
    """How long to wait before the next attempt. Times in milliseconds inside, seconds in the makers.

    >>> Backoff.exponential(base=1, cap=300, jitter="none").delay_ms(3, lambda low, high: high)
    4000
    """

    shape: Shape = Shape.EXPONENTIAL
    base_ms: int = 500
    cap_ms: int = 30_000
    jitter: Jitter = Jitter.FULL
    delays_ms: tuple[int, ...] = ()

    @classmethod
    def exponential(
        cls, base: float = 0.5, cap: float = 30.0, jitter: str | Jitter = Jitter.FULL
    ) -> "Backoff":
        """base, 2·base, 4·base … up to cap."""
        return _checked(Shape.EXPONENTIAL, base, cap, jitter)

    @classmethod
    def linear(cls, base: float = 0.5, cap: float = 30.0, jitter: str | Jitter = Jitter.FULL) -> "Backoff":
        """base, 2·base, 3·base … up to cap."""
        return _checked(Shape.LINEAR, base, cap, jitter)

    @classmethod
    def fixed(cls, delay: float, jitter: str | Jitter = Jitter.NONE) -> "Backoff":
        """The same delay each time."""
        return _checked(Shape.FIXED, delay, delay, jitter)

    @classmethod
    def listed(cls, *delays: float, jitter: str | Jitter = Jitter.NONE) -> "Backoff":
        """These delays in turn; the last one again for every later attempt."""
        if not delays:
            raise OptionError("backoff.delays", delays, "at least one delay in seconds")
        each = tuple(_milliseconds("backoff.delays", delay) for delay in delays)
        return cls(Shape.LISTED, max(each), max(each), _jitter(jitter), each)

    @classmethod
    def spool(cls) -> "Backoff":
        """1, 2, 4 … 256, 300 seconds, without jitter."""
        return cls.exponential(base=1, cap=300, jitter=Jitter.NONE)

    def delay_ms(self, attempts: int, uniform: Uniform, last_ms: int | None = None) -> int:
        """The wait after `attempts` failed executions, the newest included; `last_ms` was the wait before."""
        ceiling = self._ceiling_ms(attempts)
        match self.jitter:
            case Jitter.NONE:
                return ceiling
            case Jitter.FULL:
                return round(uniform(0, ceiling))
            case Jitter.EQUAL:
                return round(ceiling / 2 + uniform(0, ceiling / 2))
            case Jitter.DECORRELATED:
                low = min(self.base_ms, self.cap_ms)
                high = max(low, 3 * (last_ms or self.base_ms))
                return min(self.cap_ms, round(uniform(low, high)))

    def _ceiling_ms(self, attempts: int) -> int:
        match self.shape:
            case Shape.EXPONENTIAL:
                # Past 2^40 any base of a millisecond is over the longest cap.
                return min(self.base_ms << min(attempts - 1, 40), self.cap_ms)
            case Shape.LINEAR:
                return min(self.base_ms * attempts, self.cap_ms)
            case Shape.FIXED:
                return self.base_ms
            case Shape.LISTED:
                if not self.delays_ms:
                    # Whatever a record holds, its job must come back.
                    return min(self.base_ms, self.cap_ms)
                return self.delays_ms[min(attempts, len(self.delays_ms)) - 1]


def _checked(shape: Shape, base: float, cap: float, jitter: str | Jitter) -> Backoff:
    base_ms = _milliseconds("backoff.base", base)
    cap_ms = _milliseconds("backoff.cap", cap)
    if cap_ms < base_ms:
        raise OptionError("backoff.cap", cap, f"a cap not under the base of {base} s")
    return Backoff(shape, base_ms, cap_ms, _jitter(jitter))


def _milliseconds(field: str, seconds: object) -> int:
    wanted = f"seconds from 0 to {MAX_DELAY_MS // 1000}"
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise OptionError(field, seconds, wanted)
    if not 0 <= seconds * 1000 <= MAX_DELAY_MS:
        raise OptionError(field, seconds, wanted)
    return round(seconds * 1000)


def _jitter(jitter: str | Jitter) -> Jitter:
    try:
        return Jitter(jitter)
    except ValueError:
        raise OptionError("backoff.jitter", jitter, f"one of {', '.join(Jitter)}") from None


PRESETS: Final = {"default": Backoff(), "spool": Backoff.spool()}
