"""The memory store: moves over a dict, under one lock."""

import secrets
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager

from penstock.core import effects
from penstock.core.errors import CursorLostError
from penstock.core.events import Event
from penstock.core.job import Claimed, ExpiredLease, Job, NewJob, QueueRef
from penstock.core.moves import Beat, Expire, Move, Report, Settlement
from penstock.core.outcomes import Applied, Claims, Enqueued, Refusal, Refused, repeated
from penstock.core.states import State
from penstock.core.transitions import TABLE, Table, is_expired, refusal
from penstock.stores.bells import Belfry
from penstock.stores.memory.shelf import HeldKey, Shelf
from penstock.stores.protocol import (
    MAX_LEASE_MS,
    PROMOTE_LIMIT,
    PRUNE_LIMIT,
    RECOVER_LIMIT,
    Bell,
    Durability,
    Finding,
    HeldLease,
    Page,
    Pause,
    Query,
    QueueInfo,
    StoreInfo,
    Topic,
)


class MemoryStore:
    """A store for tests. `table` is the table of moves; only tests of the tests pass another."""

    def __init__(self, *, table: Table = TABLE, clock_us: Callable[[], int] | None = None) -> None:
        self._table = table
        self._clock_us = clock_us or (lambda: time.time_ns() // 1000)
        self._offset_ms = 0
        self._last_us = 0
        self._shelves: dict[QueueRef, Shelf] = {}
        self._lock = threading.RLock()
        self._belfry = Belfry()

    async def open(self) -> None:
        """Nothing to do."""

    async def close(self) -> None:
        """Nothing to do: another handle may still be in use."""

    def twin(self) -> "MemoryStore":
        """The store itself: it is safe in every thread."""
        return self

    # Moves

    async def enqueue(self, queue: QueueRef, jobs: Sequence[NewJob]) -> list[Enqueued | Refused]:
        with self._lock:
            shelf, now = self._shelf(queue), self._now()
            out = [self._enqueue(shelf, new, now) for new in jobs]
        self._belfry.ring(queue, Topic.READY)
        return out

    def _enqueue(self, shelf: Shelf, new: NewJob, now: int) -> Enqueued | Refused:
        known = shelf.jobs.get(new.id)
        if known is not None:
            if known.nonce != new.nonce:
                return Refused(Refusal.DUPLICATE, known.state)
            return Enqueued(known.id, True, known.state)
        if new.idempotency_key is not None:
            held = shelf.key_holder(new.idempotency_key, now)
            if held is not None:
                # Once its record is gone the id may be another job's.
                state = shelf.jobs[held.job].state if held.until is None else None
                return Enqueued(held.job, False, state, held.digest == new.digest)
            shelf.keys[new.idempotency_key] = HeldKey(new.id, new.digest)
        job = effects.enqueued(shelf.info.queue, new, now)
        shelf.put(job, Move.ENQUEUE, None, now)
        return Enqueued(job.id, True, job.state)

    async def promote(self, queue: QueueRef, limit: int = PROMOTE_LIMIT) -> int:
        with self._lock:
            moved = self._promote(self._shelf(queue), self._now(), limit)
        if moved:
            self._belfry.ring(queue, Topic.READY)
        return moved

    def _promote(self, shelf: Shelf, now: int, limit: int) -> int:
        row = self._table[Move.PROMOTE]
        moved = 0
        while moved < limit and (job := shelf.first_delayed()) is not None:
            if refusal(row, job, now=now) is not None:
                break
            shelf.put(effects.promoted(job), Move.PROMOTE, job.state, now)
            moved += 1
        return moved

    async def claim(self, queue: QueueRef, *, worker: str, limit: int, lease_ms: int) -> Claims:
        with self._lock:
            shelf, now_us = self._shelf(queue), self._now_us()
            now = now_us // 1000
            self._promote(shelf, now, PROMOTE_LIMIT)
            row, taken = self._table[Move.CLAIM], []
            is_open = self._is_open(shelf, now)
            for job in shelf.pending(limit):
                if refusal(row, job, now=now, is_open=is_open) is not None:
                    shelf.unclaimed(job)
                    continue
                after = effects.claimed(
                    job,
                    token=secrets.token_hex(16),
                    worker=worker,
                    now=now,
                    now_us=now_us,
                    lease_ms=lease_ms,
                )
                shelf.put(after, Move.CLAIM, job.state, now)
                taken.append(_claimed(after))
            return Claims(taken, self._expired(shelf, now, RECOVER_LIMIT), self._wait(shelf, now))

    async def heartbeat(
        self, queue: QueueRef, beats: Sequence[Beat], lease_ms: int
    ) -> list[Applied | Refused]:
        with self._lock:
            shelf, now = self._shelf(queue), self._now()
            out: list[Applied | Refused] = []
            for beat in beats:
                job = self._allowed(shelf, Move.HEARTBEAT, beat.id, now, beat.token)
                if isinstance(job, Job):
                    shelf.jobs[job.id] = effects.renewed(job, now, lease_ms)
                    out.append(Applied(State.ACTIVE, job.cancel_requested))
                else:
                    out.append(job)
            return out

    async def progress(self, queue: QueueRef, reports: Sequence[Report]) -> list[Applied | Refused]:
        with self._lock:
            shelf, now = self._shelf(queue), self._now()
            out: list[Applied | Refused] = []
            for report in reports:
                job = self._allowed(shelf, Move.PROGRESS, report.id, now, report.token)
                if isinstance(job, Refused):
                    out.append(job)
                    continue
                after, tells = effects.reported(job, report.value, now)
                if tells:
                    shelf.put(after, Move.PROGRESS, job.state, now)
                else:
                    shelf.jobs[job.id] = after
                out.append(Applied(State.ACTIVE, job.cancel_requested))
            return out

    async def settle(self, queue: QueueRef, settlements: Sequence[Settlement]) -> list[Applied | Refused]:
        with self._lock:
            shelf, now = self._shelf(queue), self._now()
            out = [self._settle(shelf, settlement, now) for settlement in settlements]
        self._ring_after(queue, out)
        return out

    def _settle(self, shelf: Shelf, settlement: Settlement, now: int) -> Applied | Refused:
        job = self._allowed(shelf, settlement.move, settlement.id, now, settlement.token)
        if isinstance(job, Refused):
            known = shelf.jobs.get(settlement.id)
            notes = "" if known is None else known.settled
            before = repeated(notes, settlement.token, settlement.move)
            return job if before is None else Applied(before)
        after = effects.settled(job, settlement, now)
        front = after.state is State.PENDING
        shelf.put(after, settlement.move, job.state, now, front=front)
        return Applied(after.state)

    async def expire(self, queue: QueueRef, expiries: Sequence[Expire]) -> list[Applied | Refused]:
        with self._lock:
            shelf, now = self._shelf(queue), self._now()
            out: list[Applied | Refused] = []
            for expiry in expiries:
                job = self._allowed(shelf, Move.EXPIRE, expiry.id, now, expiry.token)
                if isinstance(job, Refused):
                    out.append(job)
                    continue
                after = effects.expired(job, expiry, now)
                front = after.state is State.PENDING
                shelf.put(after, Move.EXPIRE, job.state, now, front=front)
                out.append(Applied(after.state))
        self._ring_after(queue, out)
        return out

    async def cancel(self, queue: QueueRef, ids: Sequence[str]) -> list[Applied | Refused]:
        with self._lock:
            shelf, now = self._shelf(queue), self._now()
            out: list[Applied | Refused] = []
            for each in ids:
                job = self._allowed(shelf, Move.CANCEL, each, now)
                if isinstance(job, Job) and not job.cancel_requested:
                    after = effects.cancelled(job, now)
                    shelf.put(after, Move.CANCEL, job.state, now)
                    job = after
                out.append(Applied(job.state, job.cancel_requested) if isinstance(job, Job) else job)
        self._ring_after(queue, out)
        return out

    async def redrive(self, queue: QueueRef, ids: Sequence[str]) -> list[Applied | Refused]:
        with self._lock:
            shelf, now = self._shelf(queue), self._now()
            out: list[Applied | Refused] = []
            for each in ids:
                job = self._allowed(shelf, Move.REDRIVE, each, now)
                if isinstance(job, Refused):
                    out.append(job)
                    continue
                shelf.put(effects.redriven(job), Move.REDRIVE, job.state, now)
                out.append(Applied(State.PENDING))
        self._ring_after(queue, out)
        return out

    async def delete(self, queue: QueueRef, ids: Sequence[str]) -> list[Applied | Refused]:
        with self._lock:
            shelf, now = self._shelf(queue), self._now()
            out: list[Applied | Refused] = []
            gone: dict[str, Job] = {}
            for each in ids:
                job = (
                    Refused(Refusal.MISSING) if each in gone else self._allowed(shelf, Move.DELETE, each, now)
                )
                if isinstance(job, Job):
                    gone[each] = job
                    out.append(Applied(job.state))
                else:
                    out.append(job)
            shelf.remove(list(gone.values()), Move.DELETE, now)
            return out

    async def prune(self, queue: QueueRef, limit: int = PRUNE_LIMIT) -> int:
        with self._lock:
            shelf, now = self._shelf(queue), self._now()
            row = self._table[Move.PRUNE]
            ended = (job for job in shelf.jobs.values() if refusal(row, job, now=now) is None)
            gone = sorted(ended, key=lambda job: (job.ended_at or 0, job.id))[:limit]
            shelf.remove(gone, Move.PRUNE, now)
            shelf.forget_keys(now)
            return len(gone)

    # Reads

    async def get(self, queue: QueueRef, ids: Sequence[str]) -> list[Job | None]:
        with self._lock:
            shelf = self._shelves.get(queue)
            return [shelf.jobs.get(each) if shelf else None for each in ids]

    async def find(self, queue: QueueRef, query: Query) -> Page:
        with self._lock:
            shelf = self._shelves.get(queue)
            jobs = list(shelf.jobs.values()) if shelf else []
        by_end = bool(query.states) and all(state.is_ended for state in query.states)

        def age(job: Job) -> tuple[int, str]:
            return ((job.ended_at or 0) if by_end else job.enqueued_at, job.id)

        found = sorted(
            (
                job
                for job in jobs
                if (not query.states or job.state in query.states)
                and (query.task is None or job.task == query.task)
            ),
            key=age,
            reverse=True,
        )
        if query.after is not None:
            at, _, last = query.after.partition("/")
            found = [job for job in found if age(job) < (int(at), last)]
        page = found[: query.limit]
        more = len(found) > len(page)
        return Page(page, f"{age(page[-1])[0]}/{page[-1].id}" if more and page else None)

    async def counts(self, queue: QueueRef) -> dict[State, int]:
        with self._lock:
            shelf = self._shelves.get(queue)
            counts = dict.fromkeys(State, 0)
            for job in shelf.jobs.values() if shelf else ():
                counts[job.state] += 1
            return counts

    async def ahead(self, queue: QueueRef, job: str) -> int:
        with self._lock:
            shelf = self._shelves.get(queue)
            if shelf is None or job not in shelf.jobs:
                return 0

            def order(each: Job) -> tuple[int, int]:
                return -each.priority, shelf.places[each.id]

            mine = order(shelf.jobs[job])
            waiting = (each for each in shelf.jobs.values() if each.state is State.PENDING)
            return sum(order(each) < mine for each in waiting)

    async def expired(self, queue: QueueRef, limit: int = RECOVER_LIMIT) -> list[ExpiredLease]:
        with self._lock:
            return self._expired(self._shelf(queue), self._now(), limit)

    async def leases(self, queue: QueueRef, worker: str | None = None) -> list[HeldLease]:
        with self._lock:
            shelf = self._shelves.get(queue)
            return [
                HeldLease(job.id, job.token or "", job.worker or "", job.deadline or 0)
                for job in (shelf.jobs.values() if shelf else ())
                if job.state is State.ACTIVE and worker in (None, job.worker)
            ]

    # Queues

    async def open_queue(self, queue: QueueRef) -> QueueInfo:
        with self._lock:
            return self._shelf(queue).info

    async def queue(self, queue: QueueRef) -> QueueInfo | None:
        with self._lock:
            shelf = self._shelves.get(queue)
            return None if shelf is None else shelf.info

    async def queues(self, tenant: str) -> list[QueueInfo]:
        with self._lock:
            infos = [shelf.info for ref, shelf in self._shelves.items() if ref.tenant == tenant]
            return sorted(infos, key=lambda info: info.queue.name)

    async def pause(self, queue: QueueRef, pause: Pause | None, for_ms: int | None = None) -> None:
        with self._lock:
            shelf, now = self._shelf(queue), self._now()
            if pause is not None:
                until = None if for_ms is None else now + for_ms
                pause = Pause(now, pause.reason, pause.by, until)
            shelf.info = QueueInfo(queue, shelf.info.number, pause)
        self._belfry.ring(queue, Topic.READY)

    # Events

    async def events(self, queue: QueueRef, after: int = 0, limit: int = 1_000) -> list[Event]:
        with self._lock:
            shelf = self._shelves.get(queue)
            if shelf is None:
                return []
            first = shelf.seq - len(shelf.log) + 1
            if after + 1 < first:
                raise CursorLostError(f"events {after + 1} to {first - 1} of queue {queue} were trimmed")
            start = after - first + 1
            return shelf.log[start : start + limit]

    async def event_range(self, queue: QueueRef) -> tuple[int, int]:
        with self._lock:
            shelf = self._shelves.get(queue)
            return (1, 0) if shelf is None else (shelf.seq - len(shelf.log) + 1, shelf.seq)

    async def trim(self, queue: QueueRef, *, through: int) -> int:
        with self._lock:
            shelf = self._shelf(queue)
            cut = sum(event.seq <= through for event in shelf.log)
            del shelf.log[:cut]
            return cut

    # Wake-ups, clock, health

    def bell(self, queue: QueueRef, topic: Topic) -> AbstractAsyncContextManager[Bell]:
        return self._belfry.hang(queue, topic)

    async def now(self) -> int:
        with self._lock:
            return self._now()

    async def turn(self, by_ms: int) -> None:
        with self._lock:
            self._offset_ms += by_ms
            if by_ms < 0:
                self._last_us = 0
        self._belfry.ring_all()

    async def info(self) -> StoreInfo:
        return StoreInfo("memory", "memory://", Durability.MEMORY, "-", 1, self._offset_ms)

    async def check(self, queue: QueueRef) -> list[Finding]:
        with self._lock:
            shelf = self._shelves.get(queue)
            return [
                Finding("an active job without a lease", job.id)
                for job in (shelf.jobs.values() if shelf else ())
                if job.state is State.ACTIVE and (job.token is None or job.deadline is None)
            ]

    # Within the lock

    def _shelf(self, queue: QueueRef) -> Shelf:
        shelf = self._shelves.get(queue)
        if shelf is None:
            number = 1 + sum(ref.tenant == queue.tenant for ref in self._shelves)
            shelf = self._shelves[queue] = Shelf(QueueInfo(queue, number))
        return shelf

    def _now_us(self) -> int:
        self._last_us = max(self._last_us, self._clock_us() + self._offset_ms * 1000)
        return self._last_us

    def _now(self) -> int:
        return self._now_us() // 1000

    def _allowed(
        self, shelf: Shelf, move: Move, job_id: str, now: int, token: str | None = None
    ) -> Job | Refused:
        job = shelf.jobs.get(job_id)
        if job is None:
            return Refused(Refusal.MISSING if token is None else Refusal.LOST)
        row = self._table[move]
        why = refusal(row, job, now=now, token=token, lease_limit_ms=MAX_LEASE_MS)
        return job if why is None else Refused(why, job.state)

    def _is_open(self, shelf: Shelf, now: int) -> bool:
        pause = shelf.info.pause
        return pause is None or (pause.until is not None and pause.until <= now)

    def _expired(self, shelf: Shelf, now: int, limit: int) -> list[ExpiredLease]:
        out = [
            job
            for job in shelf.jobs.values()
            if job.state is State.ACTIVE and is_expired(job, now, MAX_LEASE_MS)
        ]
        out.sort(key=lambda job: (job.deadline or 0, job.id))
        return [_expired_lease(job) for job in out[:limit]]

    def _wait(self, shelf: Shelf, now: int) -> int | None:
        first = shelf.first_delayed()
        due = [] if first is None else [first.visible_at or 0]
        due += [job.deadline or 0 for job in shelf.jobs.values() if job.state is State.ACTIVE]
        pause = shelf.info.pause
        if pause is not None and pause.until is not None and pause.until > now:
            due.append(pause.until)
        return max(0, min(due) - now) if due else None

    def _ring_after(self, queue: QueueRef, out: Sequence[Applied | Refused]) -> None:
        states = {outcome.state for outcome in out if isinstance(outcome, Applied)}
        if states & {State.PENDING, State.DELAYED}:
            self._belfry.ring(queue, Topic.READY)
        if any(state.is_ended for state in states):
            self._belfry.ring(queue, Topic.ENDED)


def _claimed(job: Job) -> Claimed:
    return Claimed(
        id=job.id,
        task=job.task,
        payload=job.payload,
        priority=job.priority,
        options=job.options,
        enqueued_at=job.enqueued_at,
        drive=job.drive,
        delivery=job.delivery,
        attempts=job.attempts,
        token=job.token or "",
        fence=job.fence,
        deadline=job.deadline or 0,
        key=job.key,
        last_delay_ms=job.last_delay_ms,
        cancel_requested=job.cancel_requested,
    )


def _expired_lease(job: Job) -> ExpiredLease:
    return ExpiredLease(
        id=job.id,
        token=job.token or "",
        fence=job.fence,
        attempts=job.attempts,
        options=job.options,
        worker=job.worker,
        last_delay_ms=job.last_delay_ms,
    )
