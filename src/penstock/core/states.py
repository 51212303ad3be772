"""The eight states of a job, and which of them are endings."""

from enum import StrEnum


class State(StrEnum):
    """Where a job is; exactly one at any time."""

    BLOCKED = "blocked"
    PENDING = "pending"
    DELAYED = "delayed"
    ACTIVE = "active"
    COMPLETED = "completed"
    FAILED = "failed"
    DEAD = "dead"
    CANCELLED = "cancelled"

    @property
    def is_live(self) -> bool:
        """True until the job has ended."""
        return self in LIVE

    @property
    def is_ended(self) -> bool:
        """True once the job will not run again unless someone redrives it."""
        return self not in LIVE


LIVE = frozenset({State.BLOCKED, State.PENDING, State.DELAYED, State.ACTIVE})
ENDED = frozenset(State) - LIVE
WAITING = frozenset({State.BLOCKED, State.PENDING, State.DELAYED})
REDRIVABLE = frozenset({State.DEAD, State.FAILED, State.CANCELLED})
PRUNABLE = frozenset({State.COMPLETED, State.FAILED, State.CANCELLED})
