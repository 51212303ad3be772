"""The cases of the matrix: every move, from every state that can be arranged, in every circumstance."""

from collections.abc import Collection, Iterator
from enum import StrEnum
from typing import Final

import msgspec

from penstock.core.moves import Move
from penstock.core.states import State
from penstock.core.transitions import TABLE, Guard


class Lease(StrEnum):
    """Whose token the move carries.

    For enqueue: whose id, nonce and idempotency key. For unblock: which child ended.
    """

    RIGHT = "right"
    """The job's newest token. Enqueue: the same id and nonce. Unblock: the last child it awaits."""
    STALE = "stale"
    """The token of the delivery before. Enqueue: the same id, another nonce. Unblock: one that had ended."""
    OTHER = "other"
    """The token of another job. Enqueue: another id, the same idempotency key. Unblock: another's child."""


class Setting(msgspec.Struct, frozen=True):
    """How the job stands before the move. A state of None means that there is no such job.

    `used` jobs were delivered and retried before. `late` says that the job's time has come: its lease ran
    out, it is due, or it was kept long enough.
    """

    state: State | None
    used: bool = True
    cancel: bool = False
    late: bool = False
    paused: bool = False


class Case(msgspec.Struct, frozen=True):
    """One cell of the matrix.

    `target` is what was decided for an expired lease; for unblock how the child ended; for replace how the
    newer job would stand.
    """

    move: Move
    setting: Setting
    lease: Lease = Lease.RIGHT
    target: State | None = None

    def __str__(self) -> str:
        setting = self.setting
        words = [self.move, f"to {self.target}" if self.target else "", "on", setting.state or "nothing"]
        words += [
            f"with the {self.lease} one" if has_leases(self.move) else "",
            "cancel asked" if setting.cancel else "",
            "late" if setting.late else "",
            "paused" if setting.paused else "",
            "" if setting.used else "never delivered",
        ]
        return " ".join(word for word in words if word)


_CANCEL_ASKED: Final = frozenset({State.ACTIVE, State.COMPLETED, State.FAILED, State.CANCELLED})
"""States in which a job can be that was asked to stop while it ran."""


def settings() -> Iterator[Setting]:
    """Every standing of a job that moves can lead to."""
    for paused in (False, True):
        yield Setting(None, used=False, paused=paused)
        for state in State:
            if state is State.BLOCKED:
                # Only an enqueue leads there.
                yield from (Setting(state, used=False, late=late, paused=paused) for late in (False, True))
                continue
            for late in (False,) if state is State.PENDING else (False, True):
                yield Setting(state, late=late, paused=paused)
                if state in _CANCEL_ASKED:
                    yield Setting(state, late=late, cancel=True, paused=paused)
                if state in {State.PENDING, State.DELAYED, State.CANCELLED}:
                    yield Setting(state, used=False, late=late, paused=paused)


_TARGETS: Final = {
    Move.EXPIRE: TABLE[Move.EXPIRE].targets,
    Move.UNBLOCK: (State.COMPLETED, State.DEAD, None),
    Move.REPLACE: (State.PENDING, State.DELAYED),
}


def cases(moves: Collection[Move] = tuple(Move)) -> list[Case]:
    """The whole matrix, over these moves."""
    return [case for move in Move if move in moves for case in cases_of(move, moves)]


def cases_of(move: Move, moves: Collection[Move] = tuple(Move)) -> Iterator[Case]:
    """The part of the matrix that is about one move, for a store that has these moves."""
    leases = tuple(Lease) if has_leases(move) else (Lease.RIGHT,)
    for setting in settings():
        if setting.state is State.BLOCKED and Move.UNBLOCK not in moves:
            continue
        for lease in leases:
            if not setting.used and takes_token(move) and lease is not Lease.OTHER:
                continue  # The job has no token.
            for target in _TARGETS.get(move, (None,)):
                yield Case(move, setting, lease, target)


def telling_cases_of(move: Move, moves: Collection[Move]) -> list[Case]:
    """Those of them that can differ from the others: a pause concerns claims alone."""
    return [case for case in cases_of(move, moves) if move is Move.CLAIM or not case.setting.paused]


def has_leases(move: Move) -> bool:
    """True for moves that can come from the right one, from a stale one or from another."""
    return move in {Move.ENQUEUE, Move.UNBLOCK} or takes_token(move)


def takes_token(move: Move) -> bool:
    """True for the moves that need the lease."""
    return Guard.TOKEN in TABLE[move].guards
