"""How many at once and how fast: a queue's mode and limits, and the arithmetic behind them."""

from enum import StrEnum
from typing import Final

import msgspec

from penstock.core.clocks import STEP_US
from penstock.core.errors import DeclarationError, OptionError

MAX_COUNT: Final = 1_000_000_000
MOST_PER_CALL: Final = 10_000
"""Jobs or entries that a setting can let one call to a store promote, recover or pass over."""
STRIDE: Final = 1_000_000
"""Virtual time that a claim costs a key of weight one."""
MAX_WEIGHT: Final = 1_000
_UNITS: Final = (("s", 1_000), ("min", 60_000), ("h", 3_600_000), ("d", 86_400_000))


class Mode(StrEnum):
    """How jobs of a queue share its workers."""

    GLOBAL = "global"
    KEYED = "keyed"
    DYNAMIC = "dynamic"

    @property
    def has_keys(self) -> bool:
        """True when every job needs a key, and keys take turns."""
        return self is not Mode.GLOBAL


class Rate(msgspec.Struct, frozen=True, omit_defaults=True):
    """At most `count` in `per_ms` milliseconds on the long run, and `burst` at once."""

    count: int
    per_ms: int = 1_000
    burst: int = 1

    @classmethod
    def per_second(cls, count: float, burst: int = 1) -> "Rate":
        """So many a second.

        >>> Rate.per_second(0.5)
        Rate(count=1, per_ms=2000, burst=1)
        """
        if count <= 0:
            raise OptionError("rate.count", count, "more than nothing a second")
        if count < 1:
            return check_rate("rate", cls(1, round(1000 / count), burst))
        return check_rate("rate", cls(round(count * 1000), 1_000_000, burst))

    def __str__(self) -> str:
        """The rate as people write it.

        >>> str(Rate.per_second(5)), str(Rate(1, 10_000, 2)), str(Rate(7, 3_000))
        ('5/s', '6/min, 2 at once', '7 in 3 s')
        """
        burst = f", {self.burst} at once" if self.burst > 1 else ""
        for unit, length_ms in _UNITS:
            count, rest = divmod(self.count * length_ms, self.per_ms)
            if not rest:
                return f"{count}/{unit}{burst}"
        return f"{self.count} in {self.per_ms / 1000:g} s{burst}"

    @property
    def interval_us(self) -> int:
        """The time that one job uses up, rounded so that no more than the rate go."""
        return -(-self.per_ms * 1000 // self.count)

    @property
    def slack_us(self) -> int:
        """How far ahead of its time a job may go."""
        return (self.burst - 1) * self.interval_us

    @property
    def furthest_us(self) -> int:
        """How long the next may have to wait; a later time is one that the clock was set back from."""
        return self.interval_us + STEP_US

    def tokens(self, arrival_us: int, now_us: int) -> int:
        """How many may go now; `arrival_us` is when the next would be on time."""
        ahead = self._from(arrival_us, now_us) - now_us
        left = self.slack_us - ahead
        return 0 if left < 0 else left // self.interval_us + 1

    def after(self, arrival_us: int, now_us: int, taken: int) -> int:
        """When the next would be on time, after so many went now."""
        return self._from(arrival_us, now_us) + taken * self.interval_us

    def owed_at_most(self, arrival_us: int, now_us: int) -> int:
        """What another rate left behind counts no further than this one could have come."""
        return min(arrival_us, now_us + self.burst * self.interval_us)

    def opens_us(self, arrival_us: int) -> int:
        """When the next may go."""
        return arrival_us - self.slack_us

    def _from(self, arrival_us: int, now_us: int) -> int:
        if self.opens_us(arrival_us) > now_us + self.furthest_us:
            return now_us
        return max(arrival_us, now_us)


class Declaration(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What a queue's owner says of it. Kept with the queue; every client and worker compares its own."""

    version: int = 1
    mode: Mode = Mode.GLOBAL
    key_limit: int = 1
    max_active: int | None = None
    max_length: int | None = None
    rate: Rate | None = None
    key_rate: Rate | None = None


class KeyRule(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is said of one key: its own limit (dynamic queues) and its weight among the others.

    None says nothing: a key without a limit has that of all, and without a weight that of one.
    """

    limit: int | None = None
    weight: int | None = None

    @property
    def stride(self) -> int:
        """Virtual time that a claim costs this key."""
        return STRIDE // (self.weight or 1)

    @property
    def is_plain(self) -> bool:
        """True when the key is treated as one of which nothing is said."""
        return self.limit is None and self.weight in (None, 1)

    def over(self, before: "KeyRule") -> "KeyRule":
        """What holds when this is said after that: what it does not name stays."""
        return KeyRule(
            before.limit if self.limit is None else self.limit,
            before.weight if self.weight is None else self.weight,
        )


def check_declaration(wanted: Declaration) -> Declaration:
    """The declaration itself, or OptionError naming what is wrong with it."""
    _check("version", wanted.version, 1)
    _check("key_limit", wanted.key_limit, 1)
    for name in ("max_active", "max_length"):
        value = getattr(wanted, name)
        if value is not None:
            _check(name, value, 1)
    if not wanted.mode.has_keys and (wanted.key_rate is not None or wanted.key_limit != 1):
        raise OptionError("mode", str(wanted.mode), "keyed or dynamic, as there are limits per key")
    for name in ("rate", "key_rate"):
        rate = getattr(wanted, name)
        if rate is not None:
            check_rate(name, rate)
    return wanted


def check_rate(field: str, rate: Rate) -> Rate:
    """The rate itself, or OptionError."""
    _check(f"{field}.count", rate.count, 1)
    _check(f"{field}.per_ms", rate.per_ms, 1)
    _check(f"{field}.burst", rate.burst, 1)
    return rate


def check_key_rule(mode: Mode, rule: KeyRule) -> KeyRule:
    """The rule itself, or OptionError."""
    if rule.weight is not None and not 1 <= rule.weight <= MAX_WEIGHT:
        raise OptionError("weight", rule.weight, f"a whole number from 1 to {MAX_WEIGHT}")
    if rule.limit is not None:
        if mode is not Mode.DYNAMIC:
            raise OptionError("limit", rule.limit, f"none: a {mode} queue has one limit for all keys")
        _check("limit", rule.limit, 1)
    return rule


def agreed(stored: Declaration | None, wanted: Declaration, *, is_live: bool) -> Declaration:
    """What the queue's declaration is after this one was compared with it; DeclarationError on a mismatch.

    `is_live` says that jobs of the old mode are still there. A lower version is an older deployment beside a
    newer one: what is stored stays.
    """
    if stored is None:
        # A queue that was used before it was declared is a global one.
        stored = Declaration(version=0)
    if wanted.mode is not stored.mode and is_live:
        raise DeclarationError(
            f"the queue is {stored.mode} and has live jobs; it can become {wanted.mode} once it is empty"
        )
    if wanted.version > stored.version:
        return wanted
    if wanted.version < stored.version:
        if wanted.mode is not stored.mode:
            raise DeclarationError(
                f"the queue is {stored.mode} by version {stored.version} of its declaration, "
                f"and version {wanted.version} says {wanted.mode}"
            )
        return stored
    if wanted != stored:
        raise DeclarationError(
            f"version {wanted.version} of the queue's declaration has other content: "
            f"{_differences(stored, wanted)}. Raise the version to change it"
        )
    return stored


def _check(field: str, value: int, least: int) -> None:
    if type(value) is not int or not least <= value <= MAX_COUNT:
        raise OptionError(field, value, f"a whole number from {least} to {MAX_COUNT}")


def _differences(stored: Declaration, found: Declaration) -> str:
    pairs = ((name, getattr(stored, name), getattr(found, name)) for name in Declaration.__struct_fields__)
    return "; ".join(f"{name}: stored {was}, found {now}" for name, was, now in pairs if was != now)
