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

PositiveCount = Annotated[int, Meta(ge=1, le=MAX_COUNT)]


class RateOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """At most `count` in `per` seconds on the long run, and `burst` at once."""

    count: PositiveCount
    per: Annotated[float, Meta(ge=0.001, le=1_000_000)] = 1.0
    burst: PositiveCount = 1

    @property
    def rate(self) -> Rate:
        """As the queue keeps it."""
        return Rate(self.count, max(1, round(self.per * 1000)), self.burst)


class QueueDeclaration(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """The limits that a queue declares. A change needs a higher version."""

    version: PositiveCount = 1
    mode: Mode = Mode.GLOBAL
    key_limit: PositiveCount = 1
    max_active: PositiveCount | None = None
    max_length: PositiveCount | None = None
    rate: RateOptions | None = None
    key_rate: RateOptions | None = None

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


class QueuePauseView(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why the queue is paused; without `until`, it stays paused until it is resumed."""

    at: datetime
    reason: str | None = None
    by: str | None = None
    until: datetime | None = None


class QueueView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A queue. `counts` has the number of its jobs by state, where one queue is shown."""

    name: str
    mode: Mode
    pause: QueuePauseView | None = None
    declaration: QueueDeclaration | None = None
    counts: dict[State, int] | None = None


class QueueList(msgspec.Struct, frozen=True):
    """The queues that the token can read, by name."""

    queues: list[QueueView]


class QueuePauseRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The reason for a pause, and its length in seconds.

    Without a length it lasts until the queue is resumed.
    """

    reason: Annotated[str, Meta(max_length=500)] | None = None
    seconds: Seconds | None = None


class QueuePurgeRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The states of the jobs to delete; without any, all waiting jobs. Running jobs are never deleted."""

    states: list[State] | None = None


class Count(msgspec.Struct, frozen=True):
    """The number of jobs that were changed."""

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


class KeyListQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How many keys to list."""

    limit: Limit = 100


class KeyRuleUpdate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The limit and weight of a key.

    A field that is left out stays as it is; without both fields, the rule is removed.
    """

    key: Key
    limit: PositiveCount | None = None
    weight: Annotated[int, Meta(ge=1, le=1_000)] | None = None

    @property
    def rule(self) -> KeyRule | None:
        """As the queue keeps it."""
        return None if self.limit is None and self.weight is None else KeyRule(self.limit, self.weight)


def queue_view(info: QueueInfo, counts: dict[State, int] | None = None) -> QueueView:
    """The view of a queue."""
    return QueueView(
        name=info.queue.name,
        mode=info.mode,
        pause=None if info.pause is None else _pause(info.pause),
        declaration=None if info.declaration is None else _declaration(info.declaration),
        counts=counts,
    )


def key_view(info: KeyInfo) -> KeyView:
    """The view of a key."""
    return KeyView(
        key=info.key,
        waiting=info.waiting,
        active=info.active,
        limit=info.limit,
        weight=info.weight,
        held_until=at(info.held_until),
    )


def _declaration(declared: Declaration) -> QueueDeclaration:
    return QueueDeclaration(
        version=declared.version,
        mode=declared.mode,
        key_limit=declared.key_limit,
        max_active=declared.max_active,
        max_length=declared.max_length,
        rate=_rate(declared.rate),
        key_rate=_rate(declared.key_rate),
    )


def _pause(pause: Pause) -> QueuePauseView:
    return QueuePauseView(moment(pause.at), pause.reason, pause.by, at(pause.until))


def _rate(rate: Rate | None) -> RateOptions | None:
    return None if rate is None else RateOptions(rate.count, rate.per_ms / 1000, rate.burst)
