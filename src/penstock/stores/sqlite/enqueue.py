"""How jobs get into the file: ids, idempotency keys, kinds, the queue's length."""

import msgspec

from penstock.core.job import NewJob
from penstock.core.limits import Mode
from penstock.core.moves import Move
from penstock.core.outcomes import Enqueued, Refusal, Refused
from penstock.core.states import State
from penstock.core.unique import Unique, UniqueRule
from penstock.stores.corruption import ROW_ERRORS
from penstock.stores.rows import encode, headers_text, more_of, stored
from penstock.stores.sqlite.codec import key_item, new_row
from penstock.stores.sqlite.queue_transaction import QueueTransaction, distinct_batches
from penstock.stores.values import Topic

_ENQUEUED = msgspec.json.Decoder(
    list[tuple[bool | None, State | None, str | None, State | None, bool | None]], strict=False
)


def enqueue(
    transaction: QueueTransaction, jobs: list[NewJob], *, for_flow: bool = False, mode: Mode | None = None
) -> list[Enqueued | Refused]:
    """Take jobs in, in order; plain ones in a few statements for all, the others one by one.

    `for_flow` says that other jobs of a flow follow, which the queue has to take in where it took these.
    `mode` is the mode in which the caller takes the queue to be.
    """
    transaction.notifications.add(Topic.READY)
    free = transaction.limits.free_places()
    keyed = transaction.limits.declared.mode.has_keys
    is_mistaken = mode not in (None, transaction.limits.declared.mode)
    if (
        is_mistaken
        or free < len(jobs)
        or any(new.unique or new.awaits or (keyed and new.key is None) for new in jobs)
    ):
        return _one_by_one(transaction, jobs, free, for_flow=for_flow, is_mistaken=is_mistaken)
    out: list[Enqueued | Refused] = []
    for indexes in distinct_batches([new.id for new in jobs]):
        out += _enqueue(transaction, [jobs[index] for index in indexes])
    return out


def _one_by_one(
    transaction: QueueTransaction, jobs: list[NewJob], free: int, *, for_flow: bool, is_mistaken: bool
) -> list[Enqueued | Refused]:
    out: list[Enqueued | Refused] = []
    for new in jobs:
        is_known = _is_known(transaction, new)
        # Other jobs of the flow count as waiting: one that came with them must not be refused for that.
        is_let_in = not for_flow and bool(new.parents or new.awaits)
        answer: Enqueued | Refused | None = None
        if not is_known:
            free_here = 1 if is_let_in else free
            answer = Refused(Refusal.MODE) if is_mistaken else _refused(transaction, new, free_here)
        if answer is None:
            if not is_known:
                free -= 1
                _take_along(transaction, new)
            [answer] = _enqueue(transaction, [new])
        out.append(answer)
    return out


def _refused(transaction: QueueTransaction, new: NewJob, free: int) -> Enqueued | Refused | None:
    """What stands instead of a new job that is not taken in; None when it is."""
    answer = None if new.unique is None else _holder_of_kind(transaction, new, new.unique)
    if answer is not None:
        return answer
    if transaction.limits.declared.mode.has_keys and new.key is None:
        return Refused(Refusal.KEYLESS)
    return Refused(Refusal.FULL) if free < 1 else None


def _take_along(transaction: QueueTransaction, new: NewJob) -> None:
    """Keep what belongs to a job beside its record: its kind and its children."""
    if new.unique is not None:
        transaction.connection.execute(
            "INSERT OR REPLACE INTO kind (queue, key, job, since, until) VALUES (?, ?, ?, ?, ?)",
            (
                transaction.number,
                stored(new.unique.key),
                new.id,
                transaction.now,
                transaction.now + new.unique.window_ms,
            ),
        )
    transaction.connection.executemany(
        "INSERT OR IGNORE INTO child (queue, parent, child_queue, child, i) VALUES (?, ?, ?, ?, ?)",
        [(transaction.number, new.id, ref.queue, ref.id, i) for i, ref in enumerate(new.awaits)],
    )


def _is_known(transaction: QueueTransaction, new: NewJob) -> bool:
    """True when the id, or a held idempotency key, already has its job."""
    row = transaction.connection.execute(
        "SELECT 1 FROM job WHERE queue = ?1 AND id = ?2 UNION ALL "
        "SELECT 1 FROM idempotency WHERE queue = ?1 AND key = ?3 AND (until IS NULL OR until > ?4) LIMIT 1",
        (transaction.number, new.id, stored(new.idempotency_key), transaction.now),
    ).fetchone()
    return row is not None


def _holder_of_kind(transaction: QueueTransaction, new: NewJob, unique: Unique) -> Enqueued | None:
    """What stands instead of a job that is not one of its kind."""
    row = transaction.connection.execute(
        "SELECT kind.job, kind.since, job.state, job.task, job.payload, job.more FROM kind "
        "LEFT JOIN job ON job.queue = kind.queue AND job.id = kind.job AND job.state <> 'quarantined' "
        "WHERE kind.queue = ? AND kind.key = ?",
        (transaction.number, stored(unique.key)),
    ).fetchone()
    if row is None:
        return None
    holder, since, state, task, payload, more = row
    try:
        mine = more_of(more).unique
    except ROW_ERRORS:
        # Its claim will set it aside.
        mine = None
    # Once its record is gone the id may be another job's.
    if state is None or mine is None or mine.key != unique.key:
        throttled = unique.is_throttled(transaction.now - since)
        return Enqueued(holder, False, None, False) if throttled else None
    if not unique.holds(State(state), transaction.now - since):
        return None
    same = (task, payload) == (new.task, new.payload.decode())
    if unique.rule is UniqueRule.DEBOUNCE:
        visible_at = transaction.now + new.delay_ms if new.run_at is None else new.run_at
        waits = visible_at > transaction.now
        after = State.DELAYED if waits else State.PENDING
        item = (
            holder,
            new.payload.decode(),
            visible_at if waits else None,
            after,
            headers_text(new.headers),
        )
        if transaction.pick(Move.REPLACE, items=encode([item])):
            transaction.run(Move.REPLACE, "change")
            transaction.write_events(Move.REPLACE)
            return Enqueued(holder, False, after, same, replaced=True)
    return Enqueued(holder, False, State(state), same)


def _enqueue(transaction: QueueTransaction, jobs: list[NewJob]) -> list[Enqueued | Refused]:
    if any(new.idempotency_key is not None for new in jobs):
        items = encode([key_item(new) for new in jobs])
        transaction.run(Move.ENQUEUE, "free_keys", items=items)
        taken = transaction.run(Move.ENQUEUE, "take_keys", items=items).rowcount
        if taken == 0 and all(new.idempotency_key is not None for new in jobs):
            # All of it is there already.
            return _known(transaction, jobs, items)
    if not transaction.has_flows:
        transaction.has_flows = int(any(new.parents for new in jobs))
    last = transaction.last_job()
    rows = [new_row(index, new, transaction.now) for index, new in enumerate(jobs)]
    made = transaction.insert(Move.ENQUEUE, "change", rows)
    if made:
        transaction.run(Move.ENQUEUE, "event", last_n=last)
        transaction.count(made, len(jobs))
        if transaction.readies(Move.ENQUEUE):
            transaction.limits.touch(key for new in jobs if (key := stored(new.key)) is not None)
    if made == len(jobs):
        return [Enqueued(row[1], True, State(row[4])) for row in rows]
    return _known(transaction, jobs, encode([key_item(new) for new in jobs]))


def _known(transaction: QueueTransaction, jobs: list[NewJob], items: str) -> list[Enqueued | Refused]:
    """What became of jobs of which some were not taken in."""
    answers = _ENQUEUED.decode(transaction.value(Move.ENQUEUE, "answer", items=items))
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
