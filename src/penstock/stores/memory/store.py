"""The memory store: moves over a dict, under one lock."""

import secrets
from collections.abc import Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import ClassVar

from msgspec.structs import replace

from penstock.core import effects
from penstock.core.job import Claimed, Job, NewJob, QueueRef
from penstock.core.limits import (
    MAX_COUNT,
    Declaration,
    KeyRule,
    Mode,
    agreed,
    check_declaration,
    check_key_rule,
)
from penstock.core.moves import Beat, Expire, Move, Report, Settlement
from penstock.core.outcomes import Applied, Claims, Enqueued, Refusal, Refused, repeated
from penstock.core.states import LIVE, State
from penstock.core.transitions import refusal
from penstock.stores.absent import answers_absent
from penstock.stores.bounds import PROMOTE_LIMIT, PRUNE_LIMIT
from penstock.stores.claim_limits import CLAIM_LIMITS, ClaimLimits
from penstock.stores.memory.claimable import MemoryClaimable
from penstock.stores.memory.due import MemoryDue
from penstock.stores.memory.flows import MemoryFlows
from penstock.stores.memory.kept import MemoryKept
from penstock.stores.memory.ledger import Ledger
from penstock.stores.memory.log import MemoryLog
from penstock.stores.memory.quarantine import MemoryQuarantine
from penstock.stores.memory.reads import MemoryReads, expired_leases
from penstock.stores.memory.schedules import MemorySchedules
from penstock.stores.protocol import Bell, QueueBell
from penstock.stores.values import Pause, QueueContents, QueueInfo, Spawn, Topic
from penstock.stores.worker_entries import WorkerEntries


class MemoryStore(
    MemoryReads,
    MemoryDue,
    MemoryClaimable,
    MemoryLog,
    MemoryFlows,
    MemorySchedules,
    MemoryKept,
    MemoryQuarantine,
    WorkerEntries,
):
    """A store for tests. `table` is the table of moves; only tests of the tests pass another."""

    keeps_call_order: ClassVar[bool] = True
    numbers_in_order: ClassVar[bool] = True
    is_server: ClassVar[bool] = False

    async def open(self) -> None:
        """Nothing to do."""

    async def close(self) -> None:
        """Nothing to do: another handle may still be in use."""

    def twin(self) -> "MemoryStore":
        """The store itself: it is safe in every thread."""
        return self

    # Moves

    async def enqueue(
        self,
        queue: QueueRef,
        jobs: Sequence[NewJob],
        spawns: Sequence[Spawn] = (),
        mode: Mode | None = None,
    ) -> list[Enqueued | Refused]:
        with self._lock:
            ledger, now = self._ledger(queue), self._now()
            known = ledger.seq
            out = [self._enqueue(ledger, new, now, at_door=bool(spawns), mode=mode) for new in jobs]
            # A repeated call finds its jobs there, and its spawns were written with them.
            for each in spawns if ledger.seq > known else ():
                ledger.relay(each.queue, each.job)
            self._refresh(ledger)
        self._belfry.ring(queue, Topic.READY)
        return out

    @answers_absent
    async def promote(self, queue: QueueRef, limit: int = PROMOTE_LIMIT) -> int:
        with self._lock:
            ledger = self._existing(queue)
            moved = self._promote(ledger, self._now(), limit)
            self._refresh(ledger)
        if moved:
            self._belfry.ring(queue, Topic.READY)
        return moved

    def _promote(self, ledger: Ledger, now: int, limit: int) -> int:
        row = self._table[Move.PROMOTE]
        moved = 0
        while moved < limit and (job := ledger.first_delayed()) is not None:
            if refusal(row, job, now=now) is not None:
                break
            self._put(ledger, effects.promoted(job), Move.PROMOTE, job.state, now)
            moved += 1
        return moved

    @answers_absent
    async def claim(
        self,
        queue: QueueRef,
        *,
        worker: str,
        limit: int,
        lease_ms: int,
        stand_ms: int = 0,
        floor_us: int = 0,
        limits: ClaimLimits = CLAIM_LIMITS,
    ) -> Claims:
        with self._lock:
            ledger, now_us = self._existing(queue), self._now_us()
            now, floor_us = now_us // 1000, self._projected.floor_us(floor_us)
            self._promote(ledger, now, limits.promote_limit)
            self._refresh(ledger)
            taken: list[Claimed] = []
            row, is_open = self._table[Move.CLAIM], self._is_open(ledger, now)
            for job in self._ready(ledger, min(limit, self._allowance(ledger, now_us)), now_us):
                if refusal(row, job, now=now, is_open=is_open) is not None:
                    self._unclaimed(ledger, job)
                    continue
                after = effects.claimed(
                    job,
                    token=secrets.token_hex(16),
                    worker=worker,
                    now=now,
                    now_us=now_us,
                    lease_ms=lease_ms,
                    floor_us=floor_us,
                )
                self._put(ledger, after, Move.CLAIM, job.state, now)
                self._served(ledger, after, now_us)
                taken.append(_claimed(after))
            if ledger.declared.rate is not None:
                ledger.arrival_us = ledger.declared.rate.after(ledger.arrival_us, now_us, len(taken))
            self._projected.told(now_us, floor_us)
            expired = expired_leases(ledger, now, limits.recover_limit)
            return Claims(taken, expired, self._wait(ledger, now_us), now_us=now_us)

    def _ready(self, ledger: Ledger, limit: int, now_us: int) -> Iterator[Job]:
        """Jobs in claim order, one after the other as the one before was dealt with."""
        if not ledger.declared.mode.has_keys:
            yield from ledger.pending(limit)
            return
        ledger.lanes.release(ledger.declared, now_us)
        for _ in range(limit):
            key = ledger.lanes.next()
            job = None if key is None else ledger.lanes.first(key, ledger.is_current)
            if job is None:
                return
            yield ledger.jobs[job]

    def _served(self, ledger: Ledger, job: Job, now_us: int) -> None:
        if ledger.declared.mode.has_keys and job.key is not None:
            ledger.lanes.serve(job.key, ledger.declared, now_us)
        self._refresh(ledger)

    def _unclaimed(self, ledger: Ledger, job: Job) -> None:
        if not ledger.declared.mode.has_keys:
            ledger.unclaimed(job)

    def _allowance(self, ledger: Ledger, now_us: int) -> int:
        """How many may be claimed now by the queue's own limits."""
        declared, allowed = ledger.declared, MAX_COUNT
        if declared.max_active is not None:
            allowed = min(allowed, declared.max_active - ledger.counts[State.ACTIVE])
        if declared.rate is not None:
            allowed = min(allowed, declared.rate.tokens(ledger.arrival_us, now_us))
        return max(0, allowed)

    def _is_open(self, ledger: Ledger, now: int) -> bool:
        pause = ledger.info.pause
        return pause is None or (pause.until is not None and pause.until <= now)

    def _wait(self, ledger: Ledger, now_us: int) -> int | None:
        now = now_us // 1000
        first = ledger.first_delayed()
        due = [] if first is None else [first.visible_at or 0]
        due += [job.deadline or 0 for job in ledger.leased()]
        due += ledger.lanes.held_until()
        rate = ledger.declared.rate
        if rate is not None and ledger.counts[State.PENDING] and not rate.tokens(ledger.arrival_us, now_us):
            due.append(-(-rate.opens_us(ledger.arrival_us) // 1000))
        pause = ledger.info.pause
        if pause is not None and pause.until is not None and pause.until > now:
            due.append(pause.until)
        return max(0, min(due) - now) if due else None

    @answers_absent
    async def heartbeat(
        self, queue: QueueRef, beats: Sequence[Beat], lease_ms: int
    ) -> list[Applied | Refused]:
        with self._lock:
            ledger, now = self._existing(queue), self._now()
            out: list[Applied | Refused] = []
            for beat in beats:
                job = self._allowed(ledger, Move.HEARTBEAT, beat.id, now, beat.token)
                if isinstance(job, Job):
                    ledger.jobs[job.id] = effects.renewed(job, now, lease_ms)
                    out.append(Applied(State.ACTIVE, job.cancel_requested))
                else:
                    out.append(job)
            return out

    @answers_absent
    async def progress(self, queue: QueueRef, reports: Sequence[Report]) -> list[Applied | Refused]:
        with self._lock:
            ledger, now = self._existing(queue), self._now()
            out: list[Applied | Refused] = []
            for report in reports:
                job = self._allowed(ledger, Move.PROGRESS, report.id, now, report.token)
                if isinstance(job, Refused):
                    out.append(job)
                    continue
                after, tells = effects.reported(job, report.value, now)
                if tells:
                    self._put(ledger, after, Move.PROGRESS, job.state, now)
                else:
                    ledger.jobs[job.id] = after
                out.append(Applied(State.ACTIVE, job.cancel_requested))
            return out

    @answers_absent
    async def settle(self, queue: QueueRef, settlements: Sequence[Settlement]) -> list[Applied | Refused]:
        with self._lock:
            ledger, now = self._existing(queue), self._now()
            out = [self._settle(ledger, settlement, now) for settlement in settlements]
            self._refresh(ledger)
        self._ring_after(ledger, out)
        return out

    def _settle(self, ledger: Ledger, settlement: Settlement, now: int) -> Applied | Refused:
        job = self._allowed(ledger, settlement.move, settlement.id, now, settlement.token)
        if isinstance(job, Refused):
            known = ledger.jobs.get(settlement.id)
            notes = "" if known is None else known.settled
            before = repeated(notes, settlement.token, settlement.move)
            return job if before is None else Applied(before)
        after = effects.settled(job, settlement, now)
        front = after.state is State.PENDING
        self._put(ledger, after, settlement.move, job.state, now, front=front)
        return Applied(after.state)

    @answers_absent
    async def expire(self, queue: QueueRef, expiries: Sequence[Expire]) -> list[Applied | Refused]:
        with self._lock:
            ledger, now = self._existing(queue), self._now()
            out: list[Applied | Refused] = []
            for expiry in expiries:
                job = self._allowed(ledger, Move.EXPIRE, expiry.id, now, expiry.token)
                if isinstance(job, Refused):
                    out.append(job)
                    continue
                after = effects.expired(job, expiry, now)
                front = after.state is State.PENDING
                self._put(ledger, after, Move.EXPIRE, job.state, now, front=front)
                out.append(Applied(after.state))
            self._refresh(ledger)
        self._ring_after(ledger, out)
        return out

    @answers_absent
    async def cancel(self, queue: QueueRef, ids: Sequence[str]) -> list[Applied | Refused]:
        with self._lock:
            ledger, now = self._existing(queue), self._now()
            out: list[Applied | Refused] = []
            for each in ids:
                job = self._allowed(ledger, Move.CANCEL, each, now)
                if isinstance(job, Job) and not job.cancel_requested:
                    after = effects.cancelled(job, now)
                    self._put(ledger, after, Move.CANCEL, job.state, now)
                    job = after
                out.append(Applied(job.state, job.cancel_requested) if isinstance(job, Job) else job)
            self._refresh(ledger)
        self._ring_after(ledger, out)
        return out

    @answers_absent
    async def redrive(self, queue: QueueRef, ids: Sequence[str]) -> list[Applied | Refused]:
        with self._lock:
            ledger, now = self._existing(queue), self._now()
            out: list[Applied | Refused] = []
            for each in ids:
                job = self._allowed(ledger, Move.REDRIVE, each, now)
                if isinstance(job, Refused):
                    out.append(job)
                    continue
                if ledger.declared.mode.has_keys and job.key is None:
                    # It is from before the queue had keys, and would wait for ever.
                    out.append(Refused(Refusal.KEYLESS, job.state))
                    continue
                self._put(ledger, effects.redriven(job), Move.REDRIVE, job.state, now)
                out.append(Applied(State.PENDING))
            self._refresh(ledger)
        self._ring_after(ledger, out)
        return out

    @answers_absent
    async def delete(self, queue: QueueRef, ids: Sequence[str]) -> list[Applied | Refused]:
        with self._lock:
            ledger, now = self._existing(queue), self._now()
            out: list[Applied | Refused] = []
            gone: dict[str, Job] = {}
            for each in ids:
                job = (
                    Refused(Refusal.MISSING)
                    if each in gone
                    else self._allowed(ledger, Move.DELETE, each, now)
                )
                if isinstance(job, Job):
                    gone[each] = job
                    out.append(Applied(job.state))
                else:
                    out.append(job)
            ledger.remove(list(gone.values()), Move.DELETE, now)
            for job in gone.values():
                self._touch(ledger, job, Move.DELETE)
            self._refresh(ledger)
            return out

    @answers_absent
    async def prune(self, queue: QueueRef, limit: int = PRUNE_LIMIT) -> int:
        with self._lock:
            ledger, now = self._existing(queue), self._now()
            row = self._table[Move.PRUNE]
            ended = (job for job in ledger.jobs.values() if refusal(row, job, now=now) is None)
            gone = sorted(ended, key=lambda job: (job.ended_at or 0, job.id))[:limit]
            ledger.remove(gone, Move.PRUNE, now)
            ledger.forget_keys(now)
            return len(gone)

    # Queues, clock

    async def open_queue(self, queue: QueueRef) -> QueueInfo:
        with self._lock:
            return self._told(self._ledger(queue))

    async def delete_queue(self, queue: QueueRef) -> QueueContents | None:
        with self._lock:
            ledger = self._ledgers.get(queue)
            if ledger is None:
                return None
            jobs = {state: count for state, count in ledger.counts.items() if count}
            contents = QueueContents(jobs, len(ledger.schedules), len(ledger.relays))
            if contents.is_empty:
                del self._ledgers[queue]
            return contents

    async def declare(self, queue: QueueRef, declaration: Declaration) -> QueueInfo:
        with self._lock:
            ledger = self._ledger(queue)
            is_live = any(job.state in LIVE for job in ledger.jobs.values())
            wanted = agreed(ledger.info.declaration, check_declaration(declaration), is_live=is_live)
            if wanted == ledger.info.declaration:
                return self._told(ledger)
            ledger.info = replace(ledger.info, declaration=wanted)
            rate = wanted.rate
            ledger.arrival_us = 0 if rate is None else rate.owed_at_most(ledger.arrival_us, self._now_us())
            ledger.lanes.owe_at_most(wanted, self._now_us())
            ledger.touched += list(ledger.lanes.known())
            self._refresh(ledger)
            ledger.lanes.hold_again(wanted, self._now_us())
        self._belfry.ring(queue, Topic.READY)
        return self._told(ledger)

    async def set_key_rule(self, queue: QueueRef, key: str, rule: KeyRule | None) -> None:
        with self._lock:
            ledger = self._ledger(queue)
            before = ledger.lanes.rule(key)
            after = KeyRule() if rule is None else check_key_rule(ledger.declared.mode, rule).over(before)
            ledger.lanes.rules.pop(key, None)
            if not after.is_plain:
                ledger.lanes.rules[key] = after
            ledger.touched.append(key)
            self._refresh(ledger)
        self._belfry.ring(queue, Topic.READY)

    async def pause(self, queue: QueueRef, pause: Pause | None, for_ms: int | None = None) -> None:
        with self._lock:
            ledger, now = self._ledger(queue), self._now()
            if pause is not None:
                until = None if for_ms is None else now + for_ms
                pause = Pause(now, pause.reason, pause.by, until)
            ledger.info = replace(ledger.info, pause=pause)
        self._belfry.ring(queue, Topic.READY)

    def bell(self, queue: QueueRef, topic: Topic) -> AbstractAsyncContextManager[Bell]:
        return self._belfry.hang(queue, topic)

    def queue_bell(self, tenant: str) -> AbstractAsyncContextManager[QueueBell]:
        return self._belfry.hang_for_all(tenant)

    async def turn(self, by_ms: int) -> None:
        with self._lock:
            self._offset_ms += by_ms
        self._belfry.ring_all()


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
        parents=job.parents,
        unhandled_since=job.unhandled_since,
    )
