"""How jobs of the memory store are leased: what is due first, then in claim order within the limits."""

import secrets
from collections.abc import Iterator

from penstock.core import effects
from penstock.core.clocks import has_ended
from penstock.core.job import Claimed, ExpiredLease, Job, QueueRef
from penstock.core.limits import MAX_COUNT
from penstock.core.moves import Move
from penstock.core.outcomes import Claims
from penstock.core.states import State
from penstock.core.transitions import refusal
from penstock.stores.claim_limits import ClaimLimits
from penstock.stores.memory.backend import Backend
from penstock.stores.memory.ledger import Ledger


class MemoryClaims:
    """Promotes and leases jobs."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def claim(
        self,
        queue: QueueRef,
        *,
        worker: str,
        limit: int,
        lease_ms: int,
        floor_us: int,
        limits: ClaimLimits,
    ) -> Claims:
        with self._backend.lock:
            ledger, now_us = self._backend.existing(queue), self._backend.now_us()
            now, floor_us = now_us // 1000, self._backend.projected.floor_us(floor_us)
            self.promote(ledger, now, limits.promote_limit)
            self._backend.refresh(ledger)
            taken: list[Claimed] = []
            row, is_open = self._backend.table[Move.CLAIM], self._is_open(ledger, now)
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
                self._backend.put(ledger, after, Move.CLAIM, job.state, now)
                self._served(ledger, after, now_us)
                taken.append(_claimed(after))
            if ledger.declared.rate is not None:
                ledger.arrival_us = ledger.declared.rate.after(ledger.arrival_us, now_us, len(taken))
            self._backend.projected.observe(now_us, floor_us)
            expired = expired_leases(ledger, now, limits.recover_limit)
            return Claims(taken, expired, self._wait(ledger, now_us), now_us=now_us)

    def promote(self, ledger: Ledger, now: int, limit: int) -> int:
        row = self._backend.table[Move.PROMOTE]
        moved = 0
        while moved < limit and (job := ledger.first_delayed()) is not None:
            if refusal(row, job, now=now) is not None:
                break
            self._backend.put(ledger, effects.promoted(job), Move.PROMOTE, job.state, now)
            moved += 1
        return moved

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
        self._backend.refresh(ledger)

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


def expired_leases(ledger: Ledger, now: int, limit: int) -> list[ExpiredLease]:
    """Leases that ran out, oldest first."""
    out = [job for job in ledger.leased() if has_ended(job.deadline, job.lease_ms, now)]
    out.sort(key=lambda job: (job.deadline or 0, job.id))
    return [
        ExpiredLease(
            id=job.id,
            token=job.token or "",
            fence=job.fence,
            attempts=job.attempts,
            options=job.options,
            worker=job.worker,
            last_delay_ms=job.last_delay_ms,
            key=job.key if ledger.declared.mode.has_keys else None,
        )
        for job in out[:limit]
    ]


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
        headers=job.headers,
    )
