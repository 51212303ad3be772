"""How a job gets into the memory store: ids, idempotency keys, kinds, the queue's length."""

from penstock.core import effects
from penstock.core.flows import Child
from penstock.core.job import NewJob
from penstock.core.limits import Mode
from penstock.core.moves import Move
from penstock.core.outcomes import Enqueued, Refusal, Refused
from penstock.core.transitions import refusal
from penstock.core.unique import Unique, UniqueRule
from penstock.stores.memory.backend import Backend
from penstock.stores.memory.ledger import HeldKey, Holder, Ledger


class MemoryEnqueue:
    """Takes in one job, within a call that holds the lock."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def enqueue(
        self, ledger: Ledger, new: NewJob, now: int, *, for_flow: bool = False, mode: Mode | None = None
    ) -> Enqueued | Refused:
        known = ledger.jobs.get(new.id)
        if known is not None:
            if known.nonce != new.nonce:
                return Refused(Refusal.DUPLICATE, known.state)
            return Enqueued(known.id, True, known.state)
        if new.idempotency_key is not None:
            held = ledger.key_holder(new.idempotency_key, now)
            if held is not None:
                # Once its record is gone the id may be another job's.
                state = ledger.jobs[held.job].state if held.until is None else None
                return Enqueued(held.job, False, state, held.digest == new.digest)
        if mode not in (None, ledger.declared.mode):
            return Refused(Refusal.MODE)
        if new.unique is not None:
            answer = self._holder_of_kind(ledger, new, new.unique, now)
            if answer is not None:
                return answer
        if ledger.declared.mode.has_keys and new.key is None:
            return Refused(Refusal.KEYLESS)
        # Other jobs of the flow count as waiting: one that came with them must not be refused for that.
        is_let_in = not for_flow and bool(new.parents or new.awaits)
        if ledger.free_places < 1 and not is_let_in:
            return Refused(Refusal.FULL)
        if new.idempotency_key is not None:
            ledger.keys[new.idempotency_key] = HeldKey(new.id, new.digest)
        if new.unique is not None:
            ledger.uniques[new.unique.key] = Holder(new.id, now, now + new.unique.window_ms)
        if new.awaits:
            ledger.children[new.id] = {ref: Child(ref) for ref in new.awaits}
        job = effects.enqueued(ledger.info.queue, new, now)
        self._backend.put(ledger, job, Move.ENQUEUE, None, now)
        return Enqueued(job.id, True, job.state)

    def _holder_of_kind(self, ledger: Ledger, new: NewJob, unique: Unique, now: int) -> Enqueued | None:
        """What stands instead of a job that is not one of its kind."""
        holder = ledger.uniques.get(unique.key)
        if holder is None:
            return None
        job = ledger.jobs.get(holder.job)
        # Once its record is gone the id may be that of a job of another kind.
        if job is None or job.unique is None or job.unique.key != unique.key:
            throttled = unique.is_throttled(now - holder.since)
            return Enqueued(holder.job, False, None, False) if throttled else None
        if not unique.holds(job.state, now - holder.since):
            return None
        same = (job.task, job.payload) == (new.task, new.payload)
        if (
            unique.rule is UniqueRule.DEBOUNCE
            and refusal(self._backend.table[Move.REPLACE], job, now=now) is None
        ):
            after = effects.replaced(job, new, now)
            self._backend.put(ledger, after, Move.REPLACE, job.state, now)
            return Enqueued(job.id, False, after.state, same, replaced=True)
        return Enqueued(job.id, False, job.state, same)
