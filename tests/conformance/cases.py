"""The cases of the matrix: every move, from every state that can be arranged, in every circumstance."""

from collections.abc import Iterator
from enum import StrEnum
from typing import Final

import msgspec

from penstock.core.moves import Move
from penstock.core.states import State
from penstock.core.transitions import TABLE, Guard
from tests.conformance.stores import ALIVE


class Lease(StrEnum):
    """Whose token the move carries. For enqueue: whose id, nonce and idempotency key."""

    RIGHT = "right"
    """The job's newest token. Enqueue: the same id and nonce."""
    STALE = "stale"
    """The token of the job's delivery before. Enqueue: the same id, another nonce."""
    OTHER = "other"
    """The current token of another job. Enqueue: another id, the same idempotency key."""


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
    """One cell of the matrix. `target` is what was decided for an expired lease."""

    move: Move
    setting: Setting
    lease: Lease = Lease.RIGHT
    target: State | None = None

    def __str__(self) -> str:
        setting = self.setting
        words = [self.move, f"to {self.target}" if self.target else "", "on", setting.state or "nothing"]
        words += [
            f"with the {self.lease} one" if self.move is Move.ENQUEUE or takes_token(self.move) else "",
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
                continue  # No move leads there yet.
            for late in (False,) if state is State.PENDING else (False, True):
                yield Setting(state, late=late, paused=paused)
                if state in _CANCEL_ASKED:
                    yield Setting(state, late=late, cancel=True, paused=paused)
                if state in {State.PENDING, State.DELAYED, State.CANCELLED}:
                    yield Setting(state, used=False, late=late, paused=paused)


def cases() -> list[Case]:
    """The whole matrix, over the moves that stores have."""
    return [case for move in Move if move in ALIVE for case in cases_of(move)]


def cases_of(move: Move) -> Iterator[Case]:
    """The part of the matrix that is about one move."""
    leases = tuple(Lease) if move is Move.ENQUEUE or takes_token(move) else (Lease.RIGHT,)
    targets = TABLE[move].targets if move is Move.EXPIRE else (None,)
    for setting in settings():
        for lease in leases:
            if not setting.used and takes_token(move) and lease is not Lease.OTHER:
                continue  # The job has no token.
            for target in targets:
                yield Case(move, setting, lease, target)


def takes_token(move: Move) -> bool:
    """True for the moves of whoever holds the lease."""
    return Guard.TOKEN in TABLE[move].guards
