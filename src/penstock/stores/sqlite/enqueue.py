"""How jobs get into the file: ids, idempotency keys, kinds, room."""

import msgspec

from penstock.core.job import NewJob
from penstock.core.limits import Mode
from penstock.core.moves import Move
from penstock.core.outcomes import Enqueued, Refusal, Refused
from penstock.core.states import State
from penstock.core.unique import Unique, UniqueRule
from penstock.stores.damaged import READING
from penstock.stores.rows import encode, more_of, stored
from penstock.stores.sqlite.records import key_item, new_row
from penstock.stores.sqlite.turn import Turn, rounds
from penstock.stores.values import Topic

_ENQUEUED = msgspec.json.Decoder(
    list[tuple[bool | None, State | None, str | None, State | None, bool | None]], strict=False
)


def enqueue(
    turn: Turn, jobs: list[NewJob], *, at_door: bool = False, mode: Mode | None = None
) -> list[Enqueued | Refused]:
    """Take jobs in, in order; plain ones in a few statements for all, the others one by one.

    `at_door` says that others come after these, and that these stand for them where room is short. `mode` is
    the mode in which the caller takes the queue to be.
    """
    turn.rings.add(Topic.READY)
    room = turn.limits.room()
    keyed = turn.limits.declared.mode.has_keys
    is_mistaken = mode not in (None, turn.limits.declared.mode)
    if (
        is_mistaken
        or room < len(jobs)
        or any(new.unique or new.awaits or (keyed and new.key is None) for new in jobs)
    ):
        return _one_by_one(turn, jobs, room, at_door=at_door, is_mistaken=is_mistaken)
    out: list[Enqueued | Refused] = []
    for indexes in rounds([new.id for new in jobs]):
        out += _enqueue(turn, [jobs[index] for index in indexes])
    return out


def _one_by_one(
    turn: Turn, jobs: list[NewJob], room: int, *, at_door: bool, is_mistaken: bool
) -> list[Enqueued | Refused]:
    out: list[Enqueued | Refused] = []
    for new in jobs:
        is_known = _is_known(turn, new)
        # Others of its flow take up room while they wait: what was let in with them must not stay outside.
        is_let_in = not at_door and bool(new.parents or new.awaits)
        answer: Enqueued | Refused | None = None
        if not is_known:
            here = 1 if is_let_in else room
            answer = Refused(Refusal.MODE) if is_mistaken else _refused(turn, new, here)
        if answer is None:
            if not is_known:
                room -= 1
                _take_along(turn, new)
            [answer] = _enqueue(turn, [new])
        out.append(answer)
    return out


def _refused(turn: Turn, new: NewJob, room: int) -> Enqueued | Refused | None:
    """What stands instead of a new job that is not taken in; None when it is."""
    kept = None if new.unique is None else _kept_away(turn, new, new.unique)
    if kept is not None:
        return kept
    if turn.limits.declared.mode.has_keys and new.key is None:
        return Refused(Refusal.KEYLESS)
    return Refused(Refusal.FULL) if room < 1 else None


def _take_along(turn: Turn, new: NewJob) -> None:
    """Keep what belongs to a job beside its record: its kind and its children."""
    if new.unique is not None:
        turn.connection.execute(
            "INSERT OR REPLACE INTO kind (queue, key, job, since, until) VALUES (?, ?, ?, ?, ?)",
            (turn.number, stored(new.unique.key), new.id, turn.now, turn.now + new.unique.window_ms),
        )
    turn.connection.executemany(
        "INSERT OR IGNORE INTO child (queue, parent, child_queue, child, i) VALUES (?, ?, ?, ?, ?)",
        [(turn.number, new.id, ref.queue, ref.id, i) for i, ref in enumerate(new.awaits)],
    )


def _is_known(turn: Turn, new: NewJob) -> bool:
    """True when the id, or a held idempotency key, already has its job."""
    row = turn.connection.execute(
        "SELECT 1 FROM job WHERE queue = ?1 AND id = ?2 UNION ALL "
        "SELECT 1 FROM idempotency WHERE queue = ?1 AND key = ?3 AND (until IS NULL OR until > ?4) LIMIT 1",
        (turn.number, new.id, stored(new.idempotency_key), turn.now),
    ).fetchone()
    return row is not None


def _kept_away(turn: Turn, new: NewJob, unique: Unique) -> Enqueued | None:
    """What stands instead of a job that is not one of its kind."""
    row = turn.connection.execute(
        "SELECT kind.job, kind.since, job.state, job.task, job.payload, job.more FROM kind "
        "LEFT JOIN job ON job.queue = kind.queue AND job.id = kind.job AND job.state <> 'quarantined' "
        "WHERE kind.queue = ? AND kind.key = ?",
        (turn.number, stored(unique.key)),
    ).fetchone()
    if row is None:
        return None
    holder, since, state, task, payload, more = row
    try:
        mine = more_of(more).unique
    except READING:
        # Its claim will set it aside.
        mine = None
    # Once its record is gone the id may be another job's.
    if state is None or mine is None or mine.key != unique.key:
        throttled = unique.rule is UniqueRule.THROTTLE and turn.now - since < unique.window_ms
        return Enqueued(holder, False, None, False) if throttled else None
    if not unique.holds(State(state), turn.now - since):
        return None
    same = (task, payload) == (new.task, new.payload.decode())
    if unique.rule is UniqueRule.DEBOUNCE:
        visible_at = turn.now + new.delay_ms if new.run_at is None else new.run_at
        waits = visible_at > turn.now
        after = State.DELAYED if waits else State.PENDING
        item = (holder, new.payload.decode(), visible_at if waits else None, after)
        if turn.pick(Move.REPLACE, items=encode([item])):
            turn.run(Move.REPLACE, "change")
            turn.tell(Move.REPLACE)
            return Enqueued(holder, False, after, same, replaced=True)
    return Enqueued(holder, False, State(state), same)


def _enqueue(turn: Turn, jobs: list[NewJob]) -> list[Enqueued | Refused]:
    if any(new.idempotency_key is not None for new in jobs):
        items = encode([key_item(new) for new in jobs])
        turn.run(Move.ENQUEUE, "free_keys", items=items)
        taken = turn.run(Move.ENQUEUE, "take_keys", items=items).rowcount
        if taken == 0 and all(new.idempotency_key is not None for new in jobs):
            # All of it is there already.
            return _known(turn, jobs, items)
    if not turn.has_flows:
        turn.has_flows = int(any(new.parents for new in jobs))
    last = turn.last_job()
    rows = [new_row(index, new, turn.now) for index, new in enumerate(jobs)]
    made = turn.insert(Move.ENQUEUE, "change", rows)
    if made:
        turn.run(Move.ENQUEUE, "event", last_n=last)
        turn.count(made, len(jobs))
        if turn.readies(Move.ENQUEUE):
            turn.limits.touch(key for new in jobs if (key := stored(new.key)) is not None)
    if made == len(jobs):
        return [Enqueued(row[1], True, State(row[4])) for row in rows]
    return _known(turn, jobs, encode([key_item(new) for new in jobs]))


def _known(turn: Turn, jobs: list[NewJob], items: str) -> list[Enqueued | Refused]:
    """What became of jobs of which some were not taken in."""
    answers = _ENQUEUED.decode(turn.one(Move.ENQUEUE, "answer", items=items))
    return [_enqueued(new.id, *answer) for new, answer in zip(jobs, answers, strict=True)]


def _enqueued(
    job: str,
    same_nonce: bool | None,
    state: State | None,
    holder: str | None,
    holder_state: State | None,
    same_digest: bool | None,
) -> Enqueued | Refused:
    if same_nonce is not None:
        return Enqueued(job, True, state) if same_nonce else Refused(Refusal.DUPLICATE, state)
    return Enqueued(holder or job, False, holder_state, bool(same_digest))
