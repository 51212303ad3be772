"""Jobs with nothing remarkable in their lives, found in columns: the event-by-event rules would pass them.

Nearly every job is one, and to see that in columns takes a fraction of the time. No breach is found here:
whatever is not recognised goes to the rules in `penstock.core.history.life`. Tests hold what is passed here
to what is said there.
"""

from typing import Final

import numpy as np

from penstock.core.events import COUNTED_MOVES, LEASE_MOVES
from penstock.core.history.life import LEGAL, REMOVALS, TRIES_AGAIN
from penstock.core.moves import Move
from penstock.core.states import State
from penstock.core.transitions import TABLE
from penstock.spark.audit.columns import (
    MOVE_CODES,
    NO_MOVE,
    NO_STATE,
    NONE,
    STATE_CODES,
    Flags,
    Ints,
    Jobs,
    truths,
)

_MOVES: Final = NO_MOVE + 1
_STATES: Final = NO_STATE + 1
_LEGAL: Final = truths(
    (
        (MOVE_CODES[move], STATE_CODES[source], STATE_CODES[target])
        for move, source, target in LEGAL
        # A new drive counts anew, and who is asked to stop may end otherwise: both go event by event.
        if move is not Move.REDRIVE and not (move is Move.CANCEL and target is State.ACTIVE)
    ),
    _MOVES,
    _STATES,
    _STATES,
)
_REMOVES_FROM: Final = truths(
    ((MOVE_CODES[move], STATE_CODES[source]) for move in REMOVALS for source in TABLE[move].sources),
    _MOVES,
    _STATES,
)
_REMOVES: Final = truths(((MOVE_CODES[move],) for move in REMOVALS), _MOVES)
_UNDER_LEASE: Final = truths(((MOVE_CODES[move],) for move in LEASE_MOVES), _MOVES)
_COUNTED: Final = truths(((MOVE_CODES[move],) for move in COUNTED_MOVES), _MOVES)
_TRIES_AGAIN: Final = truths(((STATE_CODES[state],) for state in TRIES_AGAIN), _STATES)
_DEAD: Final = STATE_CODES[State.DEAD]


def leases(jobs: Jobs) -> Ints:
    """For each row where the newest claim up to it stands; of a row before any claim it means nothing."""
    is_claim = jobs.move == MOVE_CODES[Move.CLAIM]
    return np.maximum.accumulate(np.where(is_claim, jobs.index, 0))


def failures(jobs: Jobs) -> Ints:
    """For each row how many attempts had failed before it."""
    counted = _COUNTED[jobs.move].astype(np.int64)
    before = np.cumsum(counted) - counted
    return before - before[jobs.first]


def plain(jobs: Jobs) -> Flags:
    """For each job whether its whole life is here, is read, and keeps every promise."""
    is_bulk = jobs.flags("is_bulk")
    alone = _alone(jobs) & _keeps_leases(jobs) & _keeps_times(jobs)
    with_others = jobs.is_last & ~jobs.is_start & _REMOVES_FROM[jobs.move, jobs.before]
    seq = jobs.numbers("seq")
    in_order = (seq > jobs.after_row(seq, NONE)) & (jobs.is_start | jobs.is_same("job", "queue", "tenant"))
    is_fine = np.where(is_bulk, with_others, alone) & in_order & jobs.flags("is_read") & jobs.is_there("job")
    return np.logical_and.reduceat(is_fine, jobs.starts)


def _alone(jobs: Jobs) -> Flags:
    """Rows of one job's own event that goes on from the one before."""
    found: Flags = (
        _LEGAL[jobs.move, jobs.source, jobs.target]
        & (jobs.source == jobs.before)
        & ((jobs.move == MOVE_CODES[Move.ENQUEUE]) == jobs.is_start)
        & (jobs.numbers("version") == jobs.index - jobs.first + 1)
        & (jobs.numbers("drive") == 1)
        & (jobs.is_last | ~_REMOVES[jobs.move])
    )
    return found


def _keeps_leases(jobs: Jobs) -> Flags:
    """Rows without a lease, and those whose lease and attempt are right."""
    is_claim = jobs.move == MOVE_CODES[Move.CLAIM]
    claims = np.cumsum(is_claim)
    lease, fence, worker = leases(jobs), jobs.numbers("fence"), jobs.codes("worker")
    # Where the row before has another lease it is that of a job before this one, or none: any fence is new.
    older = jobs.after_row(lease, 0)
    last_fence = np.maximum(np.where(older >= jobs.first, fence[older], 0), 0)
    attempt, most = failures(jobs) + 1, jobs.numbers("max_attempts")[jobs.first]
    is_lease = (
        (jobs.numbers("delivery") == claims - claims[jobs.first])
        & (jobs.numbers("attempt") == attempt)
        & (fence == fence[lease])
        & (worker == worker[lease])
    )
    is_new = (fence > last_fence) & (attempt <= most)
    is_dead = (attempt >= most) | jobs.flags("is_unhandled")
    goes_on = np.where(jobs.target == _DEAD, is_dead, ~_TRIES_AGAIN[jobs.target] | (attempt < most))
    found: Flags = (
        (~_UNDER_LEASE[jobs.move] | is_lease) & (~is_claim | is_new) & (~_COUNTED[jobs.move] | goes_on)
    )
    return found


def _keeps_times(jobs: Jobs) -> Flags:
    """Rows that do not come before their time."""
    at, deadline = jobs.numbers("at"), jobs.numbers("deadline")
    is_over = (deadline != NONE) & (deadline <= at)
    is_due = jobs.after_row(jobs.numbers("visible_at"), NONE) <= at
    found: Flags = (
        (at != NONE)
        & ((jobs.move != MOVE_CODES[Move.EXPIRE]) | is_over)
        & ((jobs.move != MOVE_CODES[Move.PROMOTE]) | is_due)
    )
    return found
