"""Silver, one row per job and drive.

A row is open while something may still happen to it: until the drive has completed, the job is removed, or
another drive has begun. An id can be used again once its job is gone: `enqueue_seq`, the number of the event
that enqueued it, tells the jobs of one id apart.
"""

from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.states import ENDED, LIVE, State
from penstock.spark.lake.schemas import JOBS
from penstock.spark.lake.silver.lives import (
    NONE,
    Groups,
    Lives,
    Marks,
    Numbers,
    differs,
    filled,
    numbers_of,
    rows_at,
    starts_of,
    together,
)

COUNTED: Final = ("retry", "bury", "expire")
_FAULTS: Final = ("complete", "fail", *COUNTED)
"""Moves that set or clear reason and error. A cancel that is only asked for does not."""
_AT_ENQUEUE: Final = ("idempotency_key", "max_attempts", "parent", "schedule", "instant")
_ENDED: Final = tuple(str(state) for state in ENDED)
SCHEMA: Final = JOBS.file_schema


class Folded(msgspec.Struct, frozen=True):
    """Rows of a table: those that may still change, and those that are closed with this batch."""

    open: pa.Table
    closed: pa.Table


def fold_jobs(lives: Lives) -> Folded:
    """The open rows as the events leave them, and the rows that they close."""
    known = lives.jobs
    if not lives.rows:
        return Folded(known, SCHEMA.empty_table())
    life_starts = starts_of(differs(lives.key), lives.is_enqueue)
    lengths = np.diff(np.append(life_starts, lives.rows))
    # A life that does not begin with its enqueue goes on from the open row of its job.
    of_life = np.where(lives.is_enqueue[life_starts], NONE, lives.known[life_starts])
    known_drive = numbers_of(known["drive"].combine_chunks()) if known.num_rows else np.zeros(1, np.int64)
    before = np.where(of_life >= 0, known_drive[of_life], NONE)
    # Removals do not say which drive they are of.
    drive = filled(lives.numbers("drive"), life_starts)
    drive = np.where(drive < 0, np.repeat(before, lengths), drive)
    starts = starts_of(differs(np.repeat(np.arange(life_starts.size), lengths)), differs(drive))
    groups = Groups(starts, lives.rows)
    life = np.searchsorted(life_starts, starts, side="right") - 1
    row = np.where(before[life] == drive[starts], of_life[life], NONE)
    is_told = groups.last(~lives.is_removal) >= 0
    made = _rows(lives, groups, life_starts[life], of_life[life], row, drive[starts])
    # Of a removal alone nothing is known that would be a row.
    is_row = is_told | (row >= 0)
    is_newest = np.append(differs(lives.key[starts])[1:], True)
    is_closed = ~is_newest | _marks(made["removed_at"]) | _equal(made["state"], State.COMPLETED)
    touched = np.zeros(known.num_rows, np.bool_)
    touched[lives.known[lives.known >= 0]] = True
    carried = np.zeros(known.num_rows, np.bool_)
    carried[row[row >= 0]] = True
    return Folded(
        together(SCHEMA, [rows_at(known, ~touched), rows_at(made, is_row & ~is_closed)]),
        together(SCHEMA, [rows_at(known, touched & ~carried), rows_at(made, is_row & is_closed)]),
    )


def _rows(
    lives: Lives, groups: Groups, born: Numbers, of_life: Numbers, row: Numbers, drive: Numbers
) -> pa.Table:
    """A row for each group of events: `row` is the open one it goes on from, `of_life` that of its job."""
    known = lives.jobs
    newest = groups.last(~lives.is_removal)
    has_ended = lives.led_to(*_ENDED)
    faults = lives.moved(*_FAULTS) | (has_ended & lives.moved("cancel", "unblock", "snooze", "release"))
    has_lease = lives.numbers("fence") >= 0
    began = groups.first(lives.is_enqueue | lives.is_redrive)
    claimed, ended, fault = groups.first(lives.is_claim), groups.last(has_ended), groups.last(faults)
    leased, removal = groups.last(has_lease), groups.last(lives.is_removal)
    asked = groups.first(lives.moved("cancel") & lives.led_to("active"))
    enqueued = np.where(lives.is_enqueue[born], born, NONE)
    nowhere = np.full(groups.count, NONE, np.int64)

    def newer(name: str, at: Numbers, other: str | None = None) -> pa.Array:
        return lives.take(name, at, known, row, other)

    def older(name: str, at: Numbers, other: str) -> pa.Array:
        """What the open row has, for it came first."""
        kept = lives.take(name, nowhere, known, row, other)
        return pc.coalesce(kept, lives.take(name, at, known, nowhere, other))

    def of_job(name: str, other: str | None = None) -> pa.Array:
        return lives.take(name, enqueued, known, of_life, other)

    state = newer("to_state", newest, "state")
    # What completed is closed with that, and closed rows stay as they are.
    has_completed = _equal(state, State.COMPLETED)
    removal = np.where(has_completed, NONE, removal)
    last = groups.last(np.ones(lives.rows, np.bool_))
    last_known = np.where(has_completed, newest, last)
    began_at, first_claim_at = older("at", began, "began_at"), older("at", claimed, "first_claim_at")
    ended_at = newer("at", ended, "ended_at")
    removed_at = newer("at", removal, "removed_at")
    made = {
        **{name: newer(name, last) for name in ("tenant", "queue", "job")},
        "enqueue_seq": of_job("seq", "enqueue_seq"),
        "drive": pa.array(drive, mask=drive < 0).cast(pa.int32()),
        **{name: newer(name, newest) for name in ("task", "key", "priority")},
        "state": state,
        "is_live": pc.and_(pc.is_in(state, pa.array([str(each) for each in LIVE])), pc.is_null(removed_at)),
        "enqueued_at": of_job("at", "enqueued_at"),
        "began_at": began_at,
        "ready_at": lives.take("at", groups.last(lives.led_to("pending")), known, of_life, "ready_at"),
        "first_claim_at": first_claim_at,
        "last_claim_at": newer("at", groups.last(lives.is_claim), "last_claim_at"),
        "ended_at": ended_at,
        "visible_at": newer("visible_at", newest),
        "changed_at": newer("at", newest, "changed_at"),
        "removed_at": removed_at,
        "removed_by": newer("move", removal, "removed_by"),
        "cancel_requested_at": older("at", asked, "cancel_requested_at"),
        "attempts": _attempts(lives, groups, row),
        "deliveries": pc.add(
            lives.take("delivery", nowhere, known, row, "deliveries").fill_null(0),
            pa.array(groups.count_of(lives.is_claim), pa.int32()),
        ),
        **{name: newer(name, leased) for name in ("worker", "fence")},
        "version": newer("version", newest),
        "last_seq": newer("seq", last_known, "last_seq"),
        **{name: newer(name, fault) for name in ("reason", "error", "fingerprint")},
        **{name: of_job(name) for name in _AT_ENQUEUE},
        "wait_ms": between(began_at, first_claim_at),
        "total_ms": between(began_at, ended_at),
    }
    return pa.table([made[field.name] for field in SCHEMA], schema=SCHEMA)


def _attempts(lives: Lives, groups: Groups, row: Numbers) -> pa.Array:
    """Attempts used up: the number of the one that was, or one less than that of one which is not yet."""
    attempt = lives.numbers("attempt")
    used = np.where(attempt < 0, 0, np.where(lives.moved(*COUNTED), attempt, attempt - 1))
    known = (
        numbers_of(lives.jobs["attempts"].combine_chunks()) if lives.jobs.num_rows else np.zeros(1, np.int64)
    )
    before = np.where(row >= 0, known[row], 0)
    return pa.array(np.maximum(groups.highest(used), before), pa.int32())


def between(start: pa.Array, end: pa.Array) -> pa.Array:
    """Milliseconds from one time to another."""
    micros = pc.subtract(end.cast(pa.int64()), start.cast(pa.int64()))
    return pc.divide(micros, 1000)


def _marks(column: pa.ChunkedArray) -> Marks:
    found: Marks = pc.is_valid(column).to_numpy()
    return found


def _equal(column: pa.Array | pa.ChunkedArray, word: str) -> Marks:
    found = pc.equal(column, str(word)).fill_null(False)
    marks: Marks = (
        found.to_numpy() if isinstance(found, pa.ChunkedArray) else found.to_numpy(zero_copy_only=False)
    )
    return marks
