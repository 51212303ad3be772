"""Queues, their limits and their keys."""

from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import Meta

from penstock.core.limits import MAX_COUNT, Declaration, KeyRule, Mode, Rate
from penstock.core.states import State
from penstock.service.wire.jobs import Key, Limit, Seconds
from penstock.service.wire.times import at, moment
from penstock.stores.values import KeyInfo, Pause, QueueInfo

Count = Annotated[int, Meta(ge=1, le=MAX_COUNT)]


class RateWish(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """At most `count` in `per` seconds on the long run, and `burst` at once."""

    count: Count
    per: Annotated[float, Meta(ge=0.001, le=1_000_000)] = 1.0
    burst: Count = 1

    @property
    def rate(self) -> Rate:
        """As the queue keeps it."""
        return Rate(self.count, max(1, round(self.per * 1000)), self.burst)


class DeclarationWish(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """What a queue shall be like. Raise the version to change what is there."""

    version: Count = 1
    mode: Mode = Mode.GLOBAL
    key_limit: Count = 1
    max_active: Count | None = None
    max_length: Count | None = None
    rate: RateWish | None = None
    key_rate: RateWish | None = None

    @property
    def declaration(self) -> Declaration:
        """As the queue keeps it."""
        return Declaration(
            version=self.version,
            mode=self.mode,
            key_limit=self.key_limit,
            max_active=self.max_active,
            max_length=self.max_length,
            rate=None if self.rate is None else self.rate.rate,
            key_rate=None if self.key_rate is None else self.key_rate.rate,
        )


class PauseView(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why nothing is claimed; without `until`, someone has to resume it."""

    at: datetime
    reason: str | None = None
    by: str | None = None
    until: datetime | None = None


class QueueView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A queue. `counts` has its jobs by state, where they were asked for."""

    name: str
    mode: Mode
    pause: PauseView | None = None
    declaration: DeclarationWish | None = None
    counts: dict[State, int] | None = None


class QueueList(msgspec.Struct, frozen=True):
    """The queues that the token lets see, by name."""

    queues: list[QueueView]


class PauseWish(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Why, and for how many seconds; until someone resumes it if that is not said."""

    reason: Annotated[str, Meta(max_length=500)] | None = None
    seconds: Seconds | None = None


class PurgeWish(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which jobs; all that wait if nothing is said. What runs is never deleted."""

    states: list[State] | None = None


class Many(msgspec.Struct, frozen=True):
    """How many jobs that were."""

    count: int


class KeyView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A key with waiting or running jobs, or a rule of its own."""

    key: str
    waiting: int
    active: int
    limit: int
    weight: int
    held_until: datetime | None = None


class KeyList(msgspec.Struct, frozen=True):
    """Keys by name."""

    keys: list[KeyView]


class KeysQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How many."""

    limit: Limit = 100


class KeyRuleWish(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is said of a key: what is not named stays; without both, all that was said is taken back."""

    key: Key
    limit: Count | None = None
    weight: Annotated[int, Meta(ge=1, le=1_000)] | None = None

    @property
    def rule(self) -> KeyRule | None:
        """As the queue keeps it."""
        return None if self.limit is None and self.weight is None else KeyRule(self.limit, self.weight)


def queue_view(info: QueueInfo, counts: dict[State, int] | None = None) -> QueueView:
    """A queue as it is shown."""
    return QueueView(
        name=info.queue.name,
        mode=info.mode,
        pause=None if info.pause is None else _pause(info.pause),
        declaration=None if info.declaration is None else _declaration(info.declaration),
        counts=counts,
    )


def key_view(info: KeyInfo) -> KeyView:
    """A key as it is shown."""
    return KeyView(
        key=info.key,
        waiting=info.waiting,
        active=info.active,
        limit=info.limit,
        weight=info.weight,
        held_until=at(info.held_until),
    )


def _declaration(declared: Declaration) -> DeclarationWish:
    return DeclarationWish(
        version=declared.version,
        mode=declared.mode,
        key_limit=declared.key_limit,
        max_active=declared.max_active,
        max_length=declared.max_length,
        rate=_rate(declared.rate),
        key_rate=_rate(declared.key_rate),
    )


def _pause(pause: Pause) -> PauseView:
    return PauseView(moment(pause.at), pause.reason, pause.by, at(pause.until))


def _rate(rate: Rate | None) -> RateWish | None:
    return None if rate is None else RateWish(rate.count, rate.per_ms / 1000, rate.burst)
