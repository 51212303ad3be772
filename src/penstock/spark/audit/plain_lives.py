"""What is taken down of plain jobs, in columns: counts, and what rules across jobs are about."""

from collections import Counter
from collections.abc import Iterator
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.events import COUNTED_MOVES
from penstock.core.history.life import REMOVALS, Life, Totals
from penstock.core.moves import Move
from penstock.core.states import ENDED, State
from penstock.spark.audit.columns import (
    MOVE_CODES,
    MOVES,
    NO_MOVE,
    NO_STATE,
    NONE,
    STATE_CODES,
    STATES,
    Flags,
    Ints,
    Jobs,
    truths,
)
from penstock.spark.audit.found import Kind, batch
from penstock.spark.audit.plain import failures, leases
from penstock.spark.audit.wanted import Wanted

_ENDED: Final = truths(((STATE_CODES[state],) for state in ENDED), NO_STATE + 1)
_REMOVES: Final = truths(((MOVE_CODES[move],) for move in REMOVALS), NO_MOVE + 1)
_ACTIVE: Final = STATE_CODES[State.ACTIVE]
_CLAIM: Final = MOVE_CODES[Move.CLAIM]
_NAMES: Final = pa.array([None, *map(str, STATES)])
_PACK: Final = msgspec.msgpack.Encoder().encode


def follow(
    jobs: Jobs, is_plain: Flags, wanted: Wanted, totals: Totals, live: Counter[State]
) -> Iterator[pa.RecordBatch]:
    """Count the plain ones of these jobs, and give what is wanted of them."""
    if not is_plain.any():
        return
    is_ours = is_plain[np.cumsum(jobs.is_start) - 1]
    starts = jobs.starts[is_plain]
    ends = np.append(jobs.starts[1:], len(jobs.index))[is_plain] - 1
    is_gone = _REMOVES[jobs.move[ends]]
    left = np.where(is_gone, jobs.before[ends], jobs.target[ends])
    _count(jobs, is_ours, left, is_gone, totals, live)
    yield from _holds(jobs, starts, ends, left, is_gone)
    yield from _instants(jobs, starts)
    if wanted.is_limited:
        yield from _steps(jobs, is_ours, starts)
    if wanted.is_compared:
        yield from _left(jobs, ends, left, is_gone, wanted)
    if wanted.is_kept:
        stays = ~is_gone
        yield from _lives(jobs, starts[stays], ends[stays], left[stays])


def _count(
    jobs: Jobs, is_ours: Flags, left: Ints, is_gone: Flags, totals: Totals, live: Counter[State]
) -> None:
    # Of an event that removed many jobs the first row stands for it.
    counts = np.bincount(jobs.move[is_ours & (jobs.numbers("place") == 0)], minlength=len(MOVES))
    totals.events += int(counts.sum())
    totals.jobs += len(left)
    for move, many in zip(MOVES, counts.tolist(), strict=True):
        totals.moves[move] += many
    has_ended = _ENDED[left]
    totals.removed += int((is_gone & has_ended).sum())
    totals.deleted += int((is_gone & ~has_ended).sum())
    stays = np.bincount(left[has_ended | ~is_gone], minlength=len(STATES) + 1)
    for state, many in zip(STATES, stays.tolist()[1:], strict=True):
        if state in ENDED:
            totals.ends[state] += many
        else:
            live[state] += many


def _named(jobs: Jobs, at: Ints, *more: str) -> dict[str, pa.Array]:
    return {name: jobs.taken(name, at) for name in ("life", "tenant", "queue", "job", "seq", *more)}


def _holds(jobs: Jobs, starts: Ints, ends: Ints, left: Ints, is_gone: Flags) -> Iterator[pa.RecordBatch]:
    """Idempotency keys: taken with the first event, freed by the ending, or by the removal of what waited."""
    is_held = jobs.is_there("idempotency_key")[starts]
    if not is_held.any():
        return
    has_ended = _ENDED[left]
    freed = jobs.numbers("seq")[np.where(is_gone & has_ended, ends - 1, ends)]
    at = starts[is_held]
    columns = _named(jobs, at)
    columns["text"] = jobs.taken("idempotency_key", at)
    columns["number"] = pa.array(freed[is_held], mask=~(has_ended | is_gone)[is_held])
    yield batch(Kind.HOLD, len(at), **columns)


def _instants(jobs: Jobs, starts: Ints) -> Iterator[pa.RecordBatch]:
    at = starts[jobs.is_there("schedule")[starts] & jobs.is_there("instant")[starts]]
    if len(at):
        columns = _named(jobs, at)
        text, number = jobs.taken("schedule", at), jobs.taken("instant", at)
        yield batch(Kind.INSTANT, len(at), text=text, number=number, **columns)


def _steps(jobs: Jobs, is_ours: Flags, starts: Ints) -> Iterator[pa.RecordBatch]:
    is_claim = is_ours & (jobs.move == _CLAIM)
    is_end = is_ours & (jobs.before == _ACTIVE) & (jobs.target != _ACTIVE)
    at = np.flatnonzero(is_claim | is_end)
    begins = pa.array(is_claim[at])
    columns = _named(jobs, at, "at")
    columns["name"] = pc.if_else(begins, str(Move.CLAIM), pa.scalar(None, pa.string()))
    columns["text"] = jobs.taken("key", leases(jobs)[at])
    columns["number"] = pc.if_else(begins, pa.scalar(1, pa.int64()), pa.scalar(-1, pa.int64()))
    yield batch(Kind.STEP, len(at), **columns)
    at = starts[~jobs.is_there("key")[starts]]
    if len(at):
        yield batch(Kind.KEYLESS, len(at), **_named(jobs, at, "at"))


def _left(jobs: Jobs, ends: Ints, left: Ints, is_gone: Flags, wanted: Wanted) -> Iterator[pa.RecordBatch]:
    # Of a trimmed log a job may be unknown: those that are known to be gone have to be named.
    is_told = np.ones(len(ends), np.bool_) if wanted.starts else ~is_gone
    at = ends[is_told]
    columns = _named(jobs, at)
    columns["name"] = _NAMES.take(pa.array(np.where(is_gone, 0, left)[is_told]))
    columns["number"] = pa.array(np.ones(len(at), np.int64), mask=is_gone[is_told])
    yield batch(Kind.LEFT, len(at), **columns)


def _lives(jobs: Jobs, starts: Ints, ends: Ints, left: Ints) -> Iterator[pa.RecordBatch]:
    """What the next audit has to know of the jobs: the life that the rules would have come to."""
    lease = leases(jobs)[ends]
    has_lease = (lease >= starts) & (jobs.move[lease] == _CLAIM)
    lease = np.where(has_lease, lease, starts)

    def numbers(name: str, rows: Ints) -> list[int | None]:
        return [None if number == NONE else number for number in jobs.numbers(name)[rows].tolist()]

    def is_in(moves: frozenset[Move]) -> Ints:
        return np.isin(jobs.move, [MOVE_CODES[move] for move in moves]).astype(np.int64)

    unblocks = np.cumsum(is_in(frozenset({Move.UNBLOCK})))
    columns = (
        left.tolist(),
        (ends - starts + 1).tolist(),
        (failures(jobs) + is_in(COUNTED_MOVES))[ends].tolist(),
        has_lease.tolist(),
        numbers("delivery", lease),
        numbers("fence", lease),
        jobs.taken("worker", lease).to_pylist(),
        numbers("deadline", lease),
        jobs.numbers("at")[lease].tolist(),
        numbers("visible_at", ends),
        numbers("max_attempts", starts),
        jobs.taken("idempotency_key", starts).to_pylist(),
        jobs.numbers("seq")[starts].tolist(),
        (unblocks[ends] > unblocks[starts]).tolist(),
    )
    lives = [_life(*values) for values in zip(*columns, strict=True)]
    packed = pa.array(map(_PACK, lives), pa.binary())
    text = pa.array([life.idempotency_key for life in lives], pa.string())
    number = pa.array([None if life.idempotency_key is None else life.since for life in lives], pa.int64())
    yield batch(Kind.LIFE, len(ends), packed=packed, text=text, number=number, **_named(jobs, ends))


def _life(
    state: int,
    version: int,
    failures: int,
    has_lease: bool,
    delivery: int | None,
    fence: int | None,
    worker: str | None,
    deadline: int | None,
    leased_at: int,
    visible_at: int | None,
    max_attempts: int | None,
    idempotency_key: str | None,
    since: int,
    is_unblocked: bool,
) -> Life:
    life = Life(
        state=STATES[state - 1],
        version=version,
        drive=1,
        failures=failures,
        visible_at=visible_at,
        max_attempts=max_attempts,
        idempotency_key=None if STATES[state - 1] in ENDED else idempotency_key,
        since=since,
        is_unblocked=is_unblocked,
    )
    if has_lease:
        life.delivery, life.fence, life.worker, life.deadline = delivery or 0, fence, worker, deadline
        life.lease_ms = None if deadline is None else deadline - leased_at
    return life
