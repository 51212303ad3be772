"""A store over one dict, as small as a store can be: moves, reads, queues, events and a clock.

`docs/how-to/write-a-store.md` explains it. The table of moves says what may happen to a job,
and `core.effects` what its record looks like afterwards. The store keeps records in an order, writes an event
with each change, and takes the time once per call.
"""

import secrets
import time
from collections.abc import Callable, Sequence
from typing import Any

from msgspec.structs import fields, replace

from penstock.core import effects
from penstock.core.clocks import has_ended
from penstock.core.cursors import check_cursor, placed, read_cursor
from penstock.core.events import DELETED, EVENT_VERSION, Event, event_of
from penstock.core.job import Claimed, ExpiredLease, Job, NewJob, QueueRef
from penstock.core.moves import Beat, Expire, Move, Report, Settlement
from penstock.core.outcomes import Applied, Claims, Enqueued, Refusal, Refused, repeated
from penstock.core.states import State
from penstock.core.transitions import TABLE, refusal
from penstock.stores.absent import QueueAbsentError, answers_absent
from penstock.stores.claim_limits import CLAIM_LIMITS, ClaimLimits
from penstock.stores.values import HeldLease, KeyHolder, Page, Pause, Query, QueueInfo

Answers = list[Applied | Refused]


class Ledger:
    """One queue: records, their places in the order of claims, the log, and the idempotency keys."""

    def __init__(self, info: QueueInfo) -> None:
        self.info, self.trimmed = info, 0
        self.jobs: dict[str, Job] = {}
        self.places: dict[str, int] = {}
        self.log: list[Event] = []
        self.keys: dict[str, tuple[str, str, int | None]] = {}
        """The job of each key, its digest, and how long the key is held once the record is gone."""

    def put(self, job: Job, move: Move, now: int, *, front: bool = False) -> None:
        """Keep the record after a move, with its event."""
        before, seq = self.jobs.get(job.id), self.trimmed + len(self.log) + 1
        more = {"attempt": before.attempts + 1, "deadline": before.deadline} if before else {}
        self.log.append(event_of(job, move, before.state if before else None, seq=seq, at=now, **more))
        self.jobs[job.id], self.places[job.id] = job, -seq if front else seq

    def remove(self, gone: Sequence[Job], move: Move, now: int) -> None:
        """Take records away, with one event; their idempotency keys stay for a time."""
        ref, seq = self.info.queue, self.trimmed + len(self.log) + 1
        if len(gone) == 1 and move is Move.DELETE:
            job = replace(gone[0], version=gone[0].version + 1)
            self.log.append(event_of(job, move, job.state, seq=seq, at=now))
        elif gone:
            event = Event(v=EVENT_VERSION, tenant=ref.tenant, queue=ref.name, seq=seq, move=move, at=now)
            reason = DELETED if move is Move.DELETE else None
            self.log.append(replace(event, jobs=[job.id for job in gone], reason=reason))
        for job in gone:
            del self.jobs[job.id], self.places[job.id]
            for key, (holder, digest, until) in self.keys.items():
                if holder == job.id and key == job.idempotency_key and until is None:
                    self.keys[key] = (holder, digest, now + job.options.key_held_ms)

    def allowed(self, move: Move, job: str, now: int, token: str | None = None) -> Job | Refused:
        """The record, if the table lets it make this move now."""
        if (found := self.jobs.get(job)) is None:
            return Refused(Refusal.MISSING if token is None else Refusal.LOST)
        why = refusal(TABLE[move], found, now=now, token=token)
        return found if why is None else Refused(why, found.state)

    def allowing(self, move: Move, now: int) -> list[Job]:
        """All jobs that the table lets make this move now."""
        return [job for job in self.jobs.values() if refusal(TABLE[move], job, now=now) is None]

    def holder(self, key: str, now: int) -> KeyHolder | None:
        """The job that holds an idempotency key."""
        job, digest, until = self.keys.get(key, ("", "", now))
        is_over = until is not None and until <= now
        return None if is_over else KeyHolder(job, self.jobs[job].state if until is None else None, digest)

    def order(self, job: Job) -> tuple[int, int]:
        """Its place among the delayed jobs, or among those that wait for a claim."""
        return job.visible_at or -job.priority, self.places[job.id]

    def overdue(self, now: int, limit: int) -> list[ExpiredLease]:
        """Leases that ran out, oldest first."""
        running = [job for job in self.jobs.values() if job.state is State.ACTIVE]
        late = [job for job in running if has_ended(job.deadline, job.lease_ms, now)]
        late.sort(key=lambda job: (job.deadline or 0, job.id))
        return [_part(ExpiredLease, replace(job, key=None)) for job in late[:limit]]


class DictStore:
    """All of its parts at once: a larger store has a class for each."""

    keeps_call_order = numbers_in_order = True
    is_server = False

    def __init__(self) -> None:
        self.moves = self.reads = self.queues = self.events = self.clock = self
        self._ledgers: dict[QueueRef, Ledger] = {}
        self._offset_ms = 0

    async def open(self) -> None:
        """Nothing to do."""

    async def close(self) -> None:
        """Nothing to do."""

    # Clock

    async def now(self) -> int:
        return self._now()

    async def advance_clock(self, by_ms: int) -> None:
        self._offset_ms += by_ms

    def _now(self) -> int:
        return time.time_ns() // 1_000_000 + self._offset_ms

    # Moves

    async def enqueue(
        self, queue: QueueRef, jobs: Sequence[NewJob], spawns: Sequence[Any] = (), mode: Any = None
    ) -> list[Enqueued | Refused]:
        await self.open_queue(queue)
        ledger, now = self._ledgers[queue], self._now()
        return [self._enqueue(ledger, new, now) for new in jobs]

    def _enqueue(self, ledger: Ledger, new: NewJob, now: int) -> Enqueued | Refused:
        if (known := ledger.jobs.get(new.id)) is not None:
            is_same = known.nonce == new.nonce
            return Enqueued(new.id, True, known.state) if is_same else Refused(Refusal.DUPLICATE, known.state)
        if new.idempotency_key is not None:
            if (held := ledger.holder(new.idempotency_key, now)) is not None:
                return Enqueued(held.id, False, held.state, held.digest == new.digest)
            ledger.keys[new.idempotency_key] = (new.id, new.digest, None)
        job = effects.enqueued(ledger.info.queue, new, now)
        ledger.put(job, Move.ENQUEUE, now)
        return Enqueued(job.id, True, job.state)

    @answers_absent
    async def promote(self, queue: QueueRef, limit: int = CLAIM_LIMITS.promote_limit) -> int:
        return self._promote(self._existing(queue), self._now(), limit)

    def _promote(self, ledger: Ledger, now: int, limit: int) -> int:
        due = sorted(ledger.allowing(Move.PROMOTE, now), key=ledger.order)[:limit]
        for job in due:
            ledger.put(effects.promoted(job), Move.PROMOTE, now)
        return len(due)

    @answers_absent
    async def claim(
        self,
        queue: QueueRef,
        *,
        worker: str,
        limit: int,
        lease_ms: int,
        floor_us: int = 0,
        limits: ClaimLimits = CLAIM_LIMITS,
    ) -> Claims:
        ledger, now = self._existing(queue), self._now()
        self._promote(ledger, now, limits.promote_limit)
        lease: dict[str, Any] = {"worker": worker, "now": now, "lease_ms": lease_ms, "floor_us": floor_us}
        pause, taken = ledger.info.pause, list[Claimed]()
        is_open = pause is None or (pause.until is not None and pause.until <= now)
        waiting = [job for job in ledger.jobs.values() if job.state is State.PENDING and is_open]
        for job in sorted(waiting, key=ledger.order)[:limit]:
            after = effects.claimed(job, token=secrets.token_hex(16), now_us=now * 1_000, **lease)
            ledger.put(after, Move.CLAIM, now)
            taken.append(_part(Claimed, after))
        due = [job.visible_at or job.deadline for job in ledger.jobs.values()]
        due += [None if pause is None or is_open else pause.until]
        wait_ms = min((max(0, at - now) for at in due if at is not None), default=None)
        return Claims(taken, ledger.overdue(now, limits.recover_limit), wait_ms, now_us=now * 1_000)

    @answers_absent
    async def heartbeat(self, queue: QueueRef, beats: Sequence[Beat], lease_ms: int) -> Answers:
        return self._make(
            queue, Move.HEARTBEAT, beats, lambda job, _, now: effects.renewed(job, now, lease_ms)
        )

    @answers_absent
    async def progress(self, queue: QueueRef, reports: Sequence[Report]) -> Answers:
        return self._make(
            queue, Move.PROGRESS, reports, lambda job, each, now: effects.reported(job, each.value, now)[0]
        )

    @answers_absent
    async def settle(self, queue: QueueRef, settlements: Sequence[Settlement]) -> Answers:
        return self._make(queue, None, settlements, effects.settled)

    @answers_absent
    async def expire(self, queue: QueueRef, expiries: Sequence[Expire]) -> Answers:
        return self._make(queue, Move.EXPIRE, expiries, effects.expired)

    @answers_absent
    async def cancel(self, queue: QueueRef, ids: Sequence[str]) -> Answers:
        def cancelled(job: Job, _: str, now: int) -> Job:
            return job if job.cancel_requested else effects.cancelled(job, now)

        return self._make(queue, Move.CANCEL, ids, cancelled)

    @answers_absent
    async def redrive(self, queue: QueueRef, ids: Sequence[str]) -> Answers:
        return self._make(queue, Move.REDRIVE, ids, lambda job, _, now: effects.redriven(job))

    def _make(
        self, queue: QueueRef, by: Move | None, items: Sequence[Any], change: Callable[..., Job]
    ) -> Answers:
        """Make a move for each item that the table allows; what a worker gives back goes to the front."""
        ledger, now, out = self._existing(queue), self._now(), list[Applied | Refused]()
        for item in items:
            move = by or item.move
            name, token = (item, None) if isinstance(item, str) else (item.id, item.token)
            job, known = ledger.allowed(move, name, now, token), ledger.jobs.get(name)
            if isinstance(job, Refused):
                before = repeated(known.settled, token, move) if known and token else None
                out.append(job if before is None else Applied(before))
                continue
            after = change(job, item, now)
            if after.version > job.version:
                ledger.put(after, move, now, front=token is not None and after.state is State.PENDING)
            ledger.jobs[name] = after
            out.append(Applied(after.state, after.cancel_requested and after.state is State.ACTIVE))
        return out

    @answers_absent
    async def delete(self, queue: QueueRef, ids: Sequence[str]) -> Answers:
        ledger, now = self._existing(queue), self._now()
        gone: dict[str, Job] = {}
        out: Answers = []
        for each in ids:
            job = Refused(Refusal.MISSING) if each in gone else ledger.allowed(Move.DELETE, each, now)
            if isinstance(job, Job):
                gone[each] = job
            out.append(Applied(job.state) if isinstance(job, Job) else job)
        ledger.remove(list(gone.values()), Move.DELETE, now)
        return out

    @answers_absent
    async def prune(self, queue: QueueRef, limit: int = 1_000) -> int:
        ledger, now = self._existing(queue), self._now()
        gone = sorted(ledger.allowing(Move.PRUNE, now), key=lambda job: (job.ended_at or 0, job.id))[:limit]
        ledger.remove(gone, Move.PRUNE, now)
        return len(gone)

    # Reads

    async def get(self, queue: QueueRef, ids: Sequence[str]) -> list[Job | None]:
        return [self._found(queue).jobs.get(job) for job in ids]

    async def find(self, queue: QueueRef, query: Query) -> Page:
        def age(job: Job) -> tuple[int, str]:
            return (job.ended_at or 0) if query.is_by_end else job.enqueued_at, job.id

        def is_asked_for(job: Job) -> bool:
            is_named = query.task in (None, job.task) and query.key in (None, job.key)
            return is_named and job.state in (query.states or State) and age(job)[0] >= (query.since or 0)

        found = sorted(filter(is_asked_for, self._found(queue).jobs.values()), key=age)
        found = found if query.oldest_first else found[::-1]
        ages = ["{}/{}".format(*age(job)) for job in found]
        start = 0
        if query.after is not None:
            at, _, last = query.after.partition("/")
            end = int(at), last
            start = sum(age(job) <= end if query.oldest_first else age(job) >= end for job in found)
        page = found[start : start + query.limit]
        end_of_page = start + len(page)
        left_out: dict[str, Any] = {} if query.payloads else {"payload": b""}
        left_out |= {} if query.results else {"result": None}
        following = ages[end_of_page - 1] if page and end_of_page < len(found) else None
        return Page([replace(job, **left_out) for job in page], following)

    async def key_holders(self, queue: QueueRef, keys: Sequence[str]) -> list[KeyHolder | None]:
        return [self._found(queue).holder(key, self._now()) for key in keys]

    async def counts(self, queue: QueueRef) -> dict[State, int]:
        states = [job.state for job in self._found(queue).jobs.values()]
        return {state: states.count(state) for state in State}

    async def ahead(self, queue: QueueRef, job: str) -> int:
        ledger = self._found(queue)
        waiting = [each for each in ledger.jobs.values() if each.state is State.PENDING]
        mine = ledger.jobs.get(job)
        return 0 if mine is None else sum(ledger.order(each) < ledger.order(mine) for each in waiting)

    async def oldest(self, queue: QueueRef) -> int | None:
        jobs = self._found(queue).jobs.values()
        return min((job.enqueued_at for job in jobs if job.state is State.PENDING), default=None)

    async def expired(self, queue: QueueRef, limit: int = CLAIM_LIMITS.recover_limit) -> list[ExpiredLease]:
        return self._found(queue).overdue(self._now(), limit)

    async def leases(self, queue: QueueRef, worker: str | None = None) -> list[HeldLease]:
        running = (job for job in self._found(queue).jobs.values() if job.state is State.ACTIVE)
        return [
            HeldLease(job.id, job.token or "", job.worker or "", job.deadline or 0)
            for job in running
            if worker in (None, job.worker)
        ]

    # Queues

    async def open_queue(self, queue: QueueRef) -> QueueInfo:
        number = 1 + len(await self.list_queues(queue.tenant))
        return self._ledgers.setdefault(queue, Ledger(QueueInfo(queue, number))).info

    async def find_queue(self, queue: QueueRef) -> QueueInfo | None:
        return self._ledgers[queue].info if queue in self._ledgers else None

    async def list_queues(self, tenant: str) -> list[QueueInfo]:
        found = [ref for ref in self._ledgers if ref.tenant == tenant]
        return [self._ledgers[ref].info for ref in sorted(found, key=lambda ref: ref.name)]

    async def list_tenants(self) -> list[str]:
        return sorted({ref.tenant for ref in self._ledgers})

    async def pause_queue(self, queue: QueueRef, pause: Pause | None, for_ms: int | None = None) -> None:
        info, now = await self.open_queue(queue), self._now()
        if pause is not None:
            pause = replace(pause, at=now, until=None if for_ms is None else now + for_ms)
        self._ledgers[queue].info = replace(info, pause=pause)

    def _found(self, queue: QueueRef) -> Ledger:
        """The queue, or an empty one that is not kept."""
        return self._ledgers.get(queue) or Ledger(QueueInfo(queue, 0))

    def _existing(self, queue: QueueRef) -> Ledger:
        if queue not in self._ledgers:
            raise QueueAbsentError
        return self._ledgers[queue]

    # Events

    async def read_events(self, queue: QueueRef, after: str | int = 0, limit: int = 1_000) -> list[Event]:
        cursor, ledger = read_cursor("after", after), self._found(queue)
        at, last = cursor.seq - ledger.trimmed, ledger.trimmed + len(ledger.log)
        there = ledger.log[at - 1] if 0 < at <= len(ledger.log) else None
        check_cursor(queue, cursor, ledger.trimmed + 1, last, there)
        return [placed(event) for event in ledger.log[at : at + limit]]

    async def event_range(self, queue: QueueRef) -> tuple[int, int]:
        ledger = self._found(queue)
        return ledger.trimmed + 1, ledger.trimmed + len(ledger.log)

    async def trim(self, queue: QueueRef, *, through: int) -> int:
        ledger = self._found(queue)
        cut = sum(event.seq <= through for event in ledger.log)
        del ledger.log[:cut]
        ledger.trimmed += cut
        return cut


def _part(kind: Any, job: Job) -> Any:
    """A value that has some of a record's fields, such as what a claim hands over."""
    return kind(**{each.name: getattr(job, each.name) for each in fields(kind) if hasattr(job, each.name)})
