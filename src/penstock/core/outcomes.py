"""What a store answers for each item of a call. A refusal is a value; an exception means the store failed."""

from collections.abc import Iterable
from enum import StrEnum

import msgspec

from penstock.core.job import Claimed, ExpiredLease
from penstock.core.moves import Move
from penstock.core.states import State


class Refusal(StrEnum):
    """Why a move was not made. Nothing was changed."""

    LOST = "lost"
    """The token is not, or no longer, the current one."""
    MISSING = "missing"
    """There is no such job."""
    STATE = "state"
    """The job's state does not allow the move."""
    DUPLICATE = "duplicate"
    """The id is taken by another job."""
    FULL = "full"
    """The queue is full."""
    KEYLESS = "keyless"
    """The queue's jobs need a key, and this one has none."""
    MODE = "mode"
    """The queue is in another mode than its caller said."""


class Applied(msgspec.Struct, frozen=True, gc=False):
    """The move was made, now or by an earlier call with the same token; `state` is what it led to."""

    state: State
    cancel_requested: bool = False


def is_asked_to_stop(outcomes: "Iterable[Applied | Refused]") -> bool:
    """True when a cancel was requested of any of these jobs that runs."""
    return any(isinstance(each, Applied) and each.cancel_requested for each in outcomes)


class Refused(msgspec.Struct, frozen=True, gc=False):
    """The move was not made; `state` is the job's, where the store looked."""

    why: Refusal
    state: State | None = None


class Enqueued(msgspec.Struct, frozen=True, gc=False):
    """The job that stands in the store for what was handed in.

    `created` is False when an idempotency key found an earlier job; `same_payload` then says whether it was
    the same work. `state` is None when that job is already pruned and only its key is left.
    """

    id: str
    created: bool
    state: State | None
    same_payload: bool = True
    replaced: bool = False


class Claims(msgspec.Struct, frozen=True):
    """What a claim brought: jobs to run, leases to recover, and when to come back.

    `wait_ms` is the time until something becomes due; None when nothing is known to. It may be longer where
    the claim brought all that it asked for. `is_more` says that the call reached the end of its work and not
    that of the queue: the next one may bring what this did not. `now_us` is the store's time of the claim in
    microseconds, from which later claims project the floor of their fences; 0 where it was not told.
    """

    jobs: list[Claimed] = []
    expired: list[ExpiredLease] = []
    wait_ms: int | None = None
    is_more: bool = False
    now_us: int = 0


def repeated(settled: str, token: str, move: Move) -> State | None:
    """The state that an earlier settlement with this token and move led to; None if there was none."""
    # The space before it keeps the end of a token from passing for the whole.
    start = f" {settled}".find(f" {token}:{move}:")
    if start < 0:
        return None
    return State(settled[start:].split(" ", 1)[0].rsplit(":", 1)[1])


def settlement_note(token: str, move: Move, state: State) -> str:
    """What a record keeps of a settlement, so that a repeat gets the same answer."""
    return f"{token}:{move}:{state} "


SETTLED_LIMIT = 2_000
"""Characters of settlement notes kept per record: the newest thirty or so."""
