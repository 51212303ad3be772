"""The moves of a job and what each of them carries into the store."""

from enum import StrEnum
from typing import ClassVar

import msgspec

from penstock.core.states import State


class Move(StrEnum):
    """A transition as an operation of the store."""

    ENQUEUE = "enqueue"
    PROMOTE = "promote"
    UNBLOCK = "unblock"
    CLAIM = "claim"
    HEARTBEAT = "heartbeat"
    PROGRESS = "progress"
    COMPLETE = "complete"
    FAIL = "fail"
    RETRY = "retry"
    BURY = "bury"
    SNOOZE = "snooze"
    RELEASE = "release"
    EXPIRE = "expire"
    CANCEL = "cancel"
    REPLACE = "replace"
    REDRIVE = "redrive"
    DELETE = "delete"
    PRUNE = "prune"


class Fault(msgspec.Struct, frozen=True):
    """Why an execution ended without success: `reason` in capitals, `error` in the handler's words."""

    reason: str
    error: str | None = None
    fingerprint: str | None = None


class Beat(msgspec.Struct, frozen=True):
    """Renew the lease with this token."""

    id: str
    token: str


class Report(msgspec.Struct, frozen=True):
    """Keep the handler's newest progress, as JSON."""

    id: str
    token: str
    value: bytes


class Complete(msgspec.Struct, frozen=True, gc=False):
    """The handler returned."""

    id: str
    token: str
    result: bytes | None = None

    move: ClassVar[Move] = Move.COMPLETE


class Fail(msgspec.Struct, frozen=True):
    """The handler said: do not retry."""

    id: str
    token: str
    fault: Fault

    move: ClassVar[Move] = Move.FAIL


class Retry(msgspec.Struct, frozen=True):
    """The execution failed and may be tried again after the delay."""

    id: str
    token: str
    delay_ms: int
    fault: Fault

    move: ClassVar[Move] = Move.RETRY


class Bury(msgspec.Struct, frozen=True):
    """The job is dead: its last execution failed, or, without an attempt, none could begin."""

    id: str
    token: str
    fault: Fault
    uses_attempt: bool = True

    move: ClassVar[Move] = Move.BURY


class Snooze(msgspec.Struct, frozen=True):
    """The job comes back later; no attempt is used.

    Without a reason its handler asked for that. A reason says why no handler could run it, and the record
    keeps since when that is so.
    """

    id: str
    token: str
    delay_ms: int
    reason: str | None = None

    move: ClassVar[Move] = Move.SNOOZE


class Release(msgspec.Struct, frozen=True):
    """The worker gives the job back unfinished; no attempt is used.

    `error` is what its handler said of a cancel; kept only where the job ends as cancelled by it.
    """

    id: str
    token: str
    error: str | None = None

    move: ClassVar[Move] = Move.RELEASE


Settlement = Complete | Fail | Retry | Bury | Snooze | Release
"""How a delivery ends by the hand of the worker that holds the lease."""


class Expire(msgspec.Struct, frozen=True):
    """What follows for a job whose lease ran out; `target` is delayed or dead, or pending in keyed queues."""

    id: str
    token: str
    target: State
    fault: Fault
    delay_ms: int = 0
