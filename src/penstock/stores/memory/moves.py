"""The moves of jobs in the memory store."""

from collections.abc import Sequence

from penstock.core import effects
from penstock.core.job import Job, NewJob, QueueRef
from penstock.core.limits import Mode
from penstock.core.moves import Beat, Expire, Move, Report, Settlement
from penstock.core.outcomes import Applied, Claims, Enqueued, Refusal, Refused, is_asked_to_stop, repeated
from penstock.core.states import State
from penstock.core.transitions import refusal
from penstock.stores.absent import answers_absent
from penstock.stores.bounds import PROMOTE_LIMIT, PRUNE_LIMIT
from penstock.stores.claim_limits import CLAIM_LIMITS, ClaimLimits
from penstock.stores.memory.backend import Backend
from penstock.stores.memory.claims import MemoryClaims
from penstock.stores.memory.enqueue import MemoryEnqueue
from penstock.stores.memory.ledger import Ledger
from penstock.stores.values import Spawn, Topic


class MemoryMoves:
    """Each move decides by the table of moves and writes its event, under the lock."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._enqueue = MemoryEnqueue(backend)
        self._claims = MemoryClaims(backend)

    async def enqueue(
        self,
        queue: QueueRef,
        jobs: Sequence[NewJob],
        spawns: Sequence[Spawn] = (),
        mode: Mode | None = None,
    ) -> list[Enqueued | Refused]:
        with self._backend.lock:
            ledger, now = self._backend.ledger(queue), self._backend.now()
            known = ledger.seq
            out = [self._enqueue.enqueue(ledger, new, now, for_flow=bool(spawns), mode=mode) for new in jobs]
            # A repeated call finds its jobs there, and its spawns were written with them.
            for each in spawns if ledger.seq > known else ():
                ledger.relay(each.queue, each.job)
            self._backend.refresh(ledger)
        self._backend.notifier.notify(queue, Topic.READY)
        return out

    @answers_absent
    async def promote(self, queue: QueueRef, limit: int = PROMOTE_LIMIT) -> int:
        with self._backend.lock:
            ledger = self._backend.existing(queue)
            moved = self._claims.promote(ledger, self._backend.now(), limit)
            self._backend.refresh(ledger)
        if moved:
            self._backend.notifier.notify(queue, Topic.READY)
        return moved

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
        return self._claims.claim(
            queue, worker=worker, limit=limit, lease_ms=lease_ms, floor_us=floor_us, limits=limits
        )

    @answers_absent
    async def heartbeat(
        self, queue: QueueRef, beats: Sequence[Beat], lease_ms: int
    ) -> list[Applied | Refused]:
        with self._backend.lock:
            ledger, now = self._backend.existing(queue), self._backend.now()
            out: list[Applied | Refused] = []
            for beat in beats:
                job = self._backend.allowed(ledger, Move.HEARTBEAT, beat.id, now, beat.token)
                if isinstance(job, Job):
                    ledger.jobs[job.id] = effects.renewed(job, now, lease_ms)
                    out.append(Applied(State.ACTIVE, job.cancel_requested))
                else:
                    out.append(job)
            return out

    @answers_absent
    async def progress(self, queue: QueueRef, reports: Sequence[Report]) -> list[Applied | Refused]:
        with self._backend.lock:
            ledger, now = self._backend.existing(queue), self._backend.now()
            out: list[Applied | Refused] = []
            for report in reports:
                job = self._backend.allowed(ledger, Move.PROGRESS, report.id, now, report.token)
                if isinstance(job, Refused):
                    out.append(job)
                    continue
                after, tells = effects.reported(job, report.value, now)
                if tells:
                    self._backend.put(ledger, after, Move.PROGRESS, job.state, now)
                else:
                    ledger.jobs[job.id] = after
                out.append(Applied(State.ACTIVE, job.cancel_requested))
            return out

    @answers_absent
    async def settle(self, queue: QueueRef, settlements: Sequence[Settlement]) -> list[Applied | Refused]:
        with self._backend.lock:
            ledger, now = self._backend.existing(queue), self._backend.now()
            out = [self._settle(ledger, settlement, now) for settlement in settlements]
            self._backend.refresh(ledger)
        self._backend.notify_after(ledger, out)
        return out

    def _settle(self, ledger: Ledger, settlement: Settlement, now: int) -> Applied | Refused:
        job = self._backend.allowed(ledger, settlement.move, settlement.id, now, settlement.token)
        if isinstance(job, Refused):
            known = ledger.jobs.get(settlement.id)
            notes = "" if known is None else known.settled
            before = repeated(notes, settlement.token, settlement.move)
            return job if before is None else Applied(before)
        after = effects.settled(job, settlement, now)
        front = after.state is State.PENDING
        self._backend.put(ledger, after, settlement.move, job.state, now, front=front)
        return Applied(after.state)

    @answers_absent
    async def expire(self, queue: QueueRef, expiries: Sequence[Expire]) -> list[Applied | Refused]:
        with self._backend.lock:
            ledger, now = self._backend.existing(queue), self._backend.now()
            out: list[Applied | Refused] = []
            for expiry in expiries:
                job = self._backend.allowed(ledger, Move.EXPIRE, expiry.id, now, expiry.token)
                if isinstance(job, Refused):
                    out.append(job)
                    continue
                after = effects.expired(job, expiry, now)
                front = after.state is State.PENDING
                self._backend.put(ledger, after, Move.EXPIRE, job.state, now, front=front)
                out.append(Applied(after.state))
            self._backend.refresh(ledger)
        self._backend.notify_after(ledger, out)
        return out

    @answers_absent
    async def cancel(self, queue: QueueRef, ids: Sequence[str]) -> list[Applied | Refused]:
        with self._backend.lock:
            ledger, now = self._backend.existing(queue), self._backend.now()
            out: list[Applied | Refused] = []
            for each in ids:
                job = self._backend.allowed(ledger, Move.CANCEL, each, now)
                if isinstance(job, Job) and not job.cancel_requested:
                    after = effects.cancelled(job, now)
                    self._backend.put(ledger, after, Move.CANCEL, job.state, now)
                    job = after
                out.append(Applied(job.state, job.cancel_requested) if isinstance(job, Job) else job)
            self._backend.refresh(ledger)
        self._backend.notify_after(ledger, out)
        if is_asked_to_stop(out):
            self._backend.notifier.notify(queue, Topic.CONTROL)
        return out

    @answers_absent
    async def redrive(self, queue: QueueRef, ids: Sequence[str]) -> list[Applied | Refused]:
        with self._backend.lock:
            ledger, now = self._backend.existing(queue), self._backend.now()
            out: list[Applied | Refused] = []
            for each in ids:
                job = self._backend.allowed(ledger, Move.REDRIVE, each, now)
                if isinstance(job, Refused):
                    out.append(job)
                    continue
                if ledger.declared.mode.has_keys and job.key is None:
                    # It is from before the queue had keys, and would wait for ever.
                    out.append(Refused(Refusal.KEYLESS, job.state))
                    continue
                self._backend.put(ledger, effects.redriven(job), Move.REDRIVE, job.state, now)
                out.append(Applied(State.PENDING))
            self._backend.refresh(ledger)
        self._backend.notify_after(ledger, out)
        return out

    @answers_absent
    async def delete(self, queue: QueueRef, ids: Sequence[str]) -> list[Applied | Refused]:
        with self._backend.lock:
            ledger, now = self._backend.existing(queue), self._backend.now()
            out: list[Applied | Refused] = []
            gone: dict[str, Job] = {}
            for each in ids:
                job = (
                    Refused(Refusal.MISSING)
                    if each in gone
                    else self._backend.allowed(ledger, Move.DELETE, each, now)
                )
                if isinstance(job, Job):
                    gone[each] = job
                    out.append(Applied(job.state))
                else:
                    out.append(job)
            ledger.remove(list(gone.values()), Move.DELETE, now)
            for job in gone.values():
                self._backend.touch(ledger, job, Move.DELETE)
            self._backend.refresh(ledger)
            return out

    @answers_absent
    async def prune(self, queue: QueueRef, limit: int = PRUNE_LIMIT) -> int:
        with self._backend.lock:
            ledger, now = self._backend.existing(queue), self._backend.now()
            row = self._backend.table[Move.PRUNE]
            ended = (job for job in ledger.jobs.values() if refusal(row, job, now=now) is None)
            gone = sorted(ended, key=lambda job: (job.ended_at or 0, job.id))[:limit]
            ledger.remove(gone, Move.PRUNE, now)
            ledger.forget_keys(now)
            return len(gone)
