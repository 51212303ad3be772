"""The table: every move, the states it starts from, where it leads, and what guards it.

The memory store is this table run over a dict. Every other store has one hand-written file per move
whose first line is the row's `sentence`.
"""

from enum import StrEnum
from typing import Final

import msgspec

from penstock.core.clocks import has_ended
from penstock.core.job import Job
from penstock.core.moves import Move
from penstock.core.outcomes import Refusal
from penstock.core.states import ENDED, LIVE, PRUNABLE, REDRIVABLE, WAITING, State


class Guard(StrEnum):
    """A fact that must hold at the moment of the move. Only the store can know it."""

    STATE = "state"
    """The job is in one of the row's source states."""
    TOKEN = "token"  # noqa: S105 (the name of a guard)
    """The token is the job's current one."""
    HELD = "held"
    """The lease holds: its deadline has not passed, nor lies in a time that the clock was set back from."""
    EXPIRED = "expired"
    """The lease has ended."""
    DUE = "due"
    """`visible_at` has come."""
    KEPT = "kept"
    """The time that an ended job is kept for is over."""
    OPEN = "open"
    """The queue is not paused."""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One move. Where `cancels` is set and a cancel was asked for, the move leads to cancelled instead."""

    move: Move
    sources: frozenset[State]
    targets: tuple[State, ...]
    rule: str
    guards: frozenset[Guard] = frozenset()
    cancels: bool = False
    readies: bool = True
    """The move can change whether a key has waiting jobs or a free slot: readiness is looked at again."""

    @property
    def sentence(self) -> str:
        """The row in words, the same in every store."""
        sources = " / ".join(state for state in State if state in self.sources) or "nothing"
        targets = " / ".join(self.targets) or "gone"
        return f"{self.move}: {sources} → {targets}; {self.rule}"


_ACTIVE: Final = frozenset({State.ACTIVE})


def _row(
    move: Move,
    sources: frozenset[State],
    targets: tuple[State, ...],
    rule: str,
    *guards: Guard,
    cancels: bool = False,
    readies: bool = True,
) -> Row:
    return Row(
        move=move,
        sources=sources,
        targets=targets,
        rule=rule,
        guards=frozenset(guards),
        cancels=cancels,
        readies=readies,
    )


def _settling(move: Move, target: State, rule: str, *, cancels: bool = False, readies: bool = True) -> Row:
    return _row(move, _ACTIVE, (target,), rule, Guard.STATE, Guard.TOKEN, cancels=cancels, readies=readies)


_ROWS: Final = (
    _row(
        Move.ENQUEUE,
        frozenset(),
        (State.PENDING, State.DELAYED, State.BLOCKED),
        "the id must be free, or hold the same nonce; a held idempotency key gives its job",
    ),
    _row(
        Move.PROMOTE,
        frozenset({State.DELAYED}),
        (State.PENDING,),
        "visible_at must have come; in order of visible_at, then arrival; to the back",
        Guard.STATE,
        Guard.DUE,
    ),
    _row(
        Move.UNBLOCK,
        frozenset({State.BLOCKED}),
        (State.PENDING, State.DELAYED, State.FAILED),
        "its last awaited child must have ended; failed if one did without success and the policy says so",
        Guard.STATE,
    ),
    _row(
        Move.CLAIM,
        frozenset({State.PENDING}),
        (State.ACTIVE,),
        "the queue must be open; new token and fence, delivery + 1, deadline = now + lease",
        Guard.STATE,
        Guard.OPEN,
    ),
    _row(
        Move.HEARTBEAT,
        _ACTIVE,
        (State.ACTIVE,),
        "the token must be current and the deadline ahead; deadline = max(old, now + lease)",
        Guard.STATE,
        Guard.TOKEN,
        Guard.HELD,
        readies=False,
    ),
    _settling(
        Move.PROGRESS, State.ACTIVE, "the token must be current; the last value is kept", readies=False
    ),
    _settling(Move.COMPLETE, State.COMPLETED, "the token must be current"),
    _settling(Move.FAIL, State.FAILED, "the token must be current"),
    _settling(
        Move.RETRY,
        State.DELAYED,
        "the token must be current; attempts + 1; cancelled if that was asked for",
        cancels=True,
    ),
    _settling(
        Move.BURY,
        State.DEAD,
        "the token must be current; attempts + 1 unless none could begin; cancelled if that was asked for",
        cancels=True,
    ),
    _settling(
        Move.SNOOZE,
        State.DELAYED,
        "the token must be current; no attempt used; cancelled if that was asked for",
        cancels=True,
    ),
    _settling(
        Move.RELEASE,
        State.PENDING,
        "the token must be current; to the front; no attempt used; cancelled if that was asked for",
        cancels=True,
    ),
    _row(
        Move.EXPIRE,
        _ACTIVE,
        (State.DELAYED, State.DEAD, State.PENDING),
        "the token must be current and the deadline passed; attempts + 1; cancelled if that was asked for",
        Guard.STATE,
        Guard.TOKEN,
        Guard.EXPIRED,
        cancels=True,
    ),
    _row(
        Move.CANCEL,
        LIVE,
        (State.CANCELLED, State.ACTIVE),
        "what waits is cancelled; of what runs the request is noted",
        Guard.STATE,
    ),
    _row(
        Move.REPLACE,
        frozenset({State.PENDING, State.DELAYED}),
        (State.PENDING, State.DELAYED),
        "new payload and visible_at",
        Guard.STATE,
    ),
    _row(
        Move.REDRIVE,
        REDRIVABLE,
        (State.PENDING,),
        "to the back; attempts 0, drive + 1, policy and options kept",
        Guard.STATE,
    ),
    _row(
        Move.DELETE,
        WAITING | ENDED,
        (),
        "by an operator; its idempotency key stays until its time",
        Guard.STATE,
    ),
    _row(
        Move.PRUNE,
        PRUNABLE,
        (),
        "after retention; its idempotency key stays until its time",
        Guard.STATE,
        Guard.KEPT,
        readies=False,
    ),
)

Table = dict[Move, Row]
TABLE: Final[Table] = {row.move: row for row in _ROWS}


def refusal(
    row: Row,
    job: Job,
    *,
    now: int,
    token: str | None = None,
    is_open: bool = True,
) -> Refusal | None:
    """Why the row forbids the move on this record at this time; None if it allows it."""
    broken = {guard for guard in row.guards if not _holds(guard, row, job, now, token, is_open)}
    if not broken:
        return None
    return Refusal.LOST if Guard.TOKEN in row.guards else Refusal.STATE


def _holds(guard: Guard, row: Row, job: Job, now: int, token: str | None, is_open: bool) -> bool:
    match guard:
        case Guard.STATE:
            return job.state in row.sources
        case Guard.TOKEN:
            return job.token == token
        case Guard.HELD:
            return not has_ended(job.deadline, job.lease_ms, now)
        case Guard.EXPIRED:
            return has_ended(job.deadline, job.lease_ms, now)
        case Guard.DUE:
            return (job.visible_at or 0) <= now
        case Guard.KEPT:
            return job.ended_at is None or job.ended_at + job.options.kept_ms <= now
        case Guard.OPEN:
            return is_open
