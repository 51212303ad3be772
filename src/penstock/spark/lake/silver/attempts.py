"""Silver, one row per attempt: a claim and how its lease ended; open as long as the lease is held."""

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.states import State
from penstock.spark.lake.schemas import ATTEMPTS
from penstock.spark.lake.silver.jobs import Folded, between
from penstock.spark.lake.silver.lives import (
    NONE,
    Groups,
    Lives,
    Numbers,
    differs,
    filled,
    numbers_of,
    places_of,
    rows_at,
    starts_of,
    together,
)

SCHEMA: Final = ATTEMPTS.file_schema
_BY_CLAIM: Final = ("drive", "delivery", "attempt", "worker", "task", "key", "priority")


def fold_attempts(lives: Lives, known: pa.Table, known_key: Numbers) -> Folded:
    """The attempts whose lease is still held, and those that the events close.

    An attempt without an ending is closed as well once its job has another lease or none: its end was lost.
    """
    if not lives.rows:
        return Folded(known, SCHEMA.empty_table())
    fences = lives.numbers("fence")
    chosen = np.flatnonzero(fences >= 0)
    # Leases of a job follow one another; should a log say otherwise, each is a row all the same.
    chosen = chosen[np.lexsort((fences[chosen], lives.key[chosen]))]
    is_active = lives.led_to(State.ACTIVE)
    told = lives.led_to(*State) | lives.is_removal
    job_starts = starts_of(differs(lives.key))
    newest = Groups(job_starts, lives.rows).last(told)
    is_held = np.where(newest >= 0, is_active[newest], True)
    keys = lives.key[job_starts]
    known_job = places_of(known_key, keys)
    if not chosen.size:
        stays = (known_job < 0) | is_held[known_job]
        return Folded(rows_at(known, stays), rows_at(known, ~stays))
    key, fence = lives.key[chosen], fences[chosen]
    starts = starts_of(differs(key), differs(fence))
    groups = Groups(starts, chosen.size)
    known_fence = numbers_of(known["fence"].combine_chunks()) if known.num_rows else np.zeros(1, np.int64)
    at = places_of(key[starts], known_key)
    at = np.where((at >= 0) & (known_fence[at] == fence[starts]), at, NONE)
    made = _rows(lives, chosen, groups, known, at)
    is_last = np.append(differs(key[starts])[1:], True)
    is_open = is_last & pc.is_null(made["outcome"]).to_numpy() & is_held[np.searchsorted(keys, key[starts])]
    carried = np.zeros(known.num_rows, np.bool_)
    carried[at[at >= 0]] = True
    has_lease = np.zeros(keys.size, np.bool_)
    has_lease[np.searchsorted(keys, key)] = True
    stays = (known_job < 0) | (is_held[known_job] & ~has_lease[known_job])
    return Folded(
        together(SCHEMA, [rows_at(known, ~carried & stays), rows_at(made, is_open)]),
        together(SCHEMA, [rows_at(known, ~carried & ~stays), rows_at(made, ~is_open)]),
    )


def _rows(lives: Lives, chosen: Numbers, groups: Groups, known: pa.Table, row: Numbers) -> pa.Table:
    is_claim = lives.is_claim[chosen]
    is_end = ~is_claim & ~lives.led_to(State.ACTIVE)[chosen]
    everything = np.ones(chosen.size, np.bool_)
    last, claim, end = groups.last(everything), groups.first(is_claim), groups.last(is_end)
    nowhere = np.full(groups.count, NONE, np.int64)

    def at(place: Numbers) -> Numbers:
        """From a place among the events of leases to one among all."""
        return np.where(place >= 0, chosen[place], NONE)

    def value(name: str, place: Numbers, other: str | None = None) -> pa.Array:
        return lives.take(name, at(place), known, row, other)

    # When the job became claimable: with its last event of that kind before the claim, or as its row says.
    ready = filled(np.where(lives.led_to("pending"), lives.at, NONE), starts_of(differs(lives.key)))
    ready_at = np.where(claim >= 0, ready[at(claim)], NONE)
    of_job = np.where((claim >= 0) & (ready_at < 0), lives.known[at(claim)], NONE)
    claimed_at, ended_at = value("at", claim, "claimed_at"), value("at", end, "ended_at")
    became_ready = pc.coalesce(
        lives.take("at", ready_at, lives.jobs, of_job, "ready_at"),
        lives.take("at", nowhere, known, row, "ready_at"),
    )
    made = {
        **{name: value(name, last) for name in ("tenant", "queue", "job", "fence", *_BY_CLAIM)},
        "ready_at": became_ready,
        "claimed_at": claimed_at,
        "deadline": value("deadline", claim),
        "ended_at": ended_at,
        "outcome": value("move", end, "outcome"),
        "state": value("to_state", end, "state"),
        **{name: value(name, end) for name in ("reason", "error", "fingerprint")},
        "wait_ms": between(became_ready, claimed_at),
        "run_ms": between(claimed_at, ended_at),
    }
    return pa.table([made[field.name] for field in SCHEMA], schema=SCHEMA)
