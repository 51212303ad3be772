"""How a job gets into the memory store: ids, idempotency keys, kinds, room."""

from penstock.core import effects
from penstock.core.flows import Child
from penstock.core.job import NewJob
from penstock.core.limits import Mode
from penstock.core.moves import Move
from penstock.core.outcomes import Enqueued, Refusal, Refused
from penstock.core.transitions import refusal
from penstock.core.unique import Unique, UniqueRule
from penstock.stores.memory.ledger import HeldKey, Holder, Ledger
from penstock.stores.memory.room import Room


class MemoryEnqueue(Room):
    """Taking one job in."""

    def _enqueue(
        self, ledger: Ledger, new: NewJob, now: int, *, at_door: bool = False, mode: Mode | None = None
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
            kept = self._kept_away(ledger, new, new.unique, now)
            if kept is not None:
                return kept
        if ledger.declared.mode.has_keys and new.key is None:
            return Refused(Refusal.KEYLESS)
        # Others of its flow take up room while they wait: what was let in with them must not stay outside.
        is_let_in = not at_door and bool(new.parents or new.awaits)
        if ledger.room < 1 and not is_let_in:
            return Refused(Refusal.FULL)
        if new.idempotency_key is not None:
            ledger.keys[new.idempotency_key] = HeldKey(new.id, new.digest)
        if new.unique is not None:
            ledger.uniques[new.unique.key] = Holder(new.id, now, now + new.unique.window_ms)
        if new.awaits:
            ledger.children[new.id] = {ref: Child(ref) for ref in new.awaits}
        job = effects.enqueued(ledger.info.queue, new, now)
        self._put(ledger, job, Move.ENQUEUE, None, now)
        return Enqueued(job.id, True, job.state)

    def _kept_away(self, ledger: Ledger, new: NewJob, unique: Unique, now: int) -> Enqueued | None:
        """What stands instead of a job that is not one of its kind."""
        holder = ledger.uniques.get(unique.key)
        if holder is None:
            return None
        job = ledger.jobs.get(holder.job)
        # Once its record is gone the id may be that of a job of another kind.
        if job is None or job.unique is None or job.unique.key != unique.key:
            throttled = unique.rule is UniqueRule.THROTTLE and now - holder.since < unique.window_ms
            return Enqueued(holder.job, False, None, False) if throttled else None
        if not unique.holds(job.state, now - holder.since):
            return None
        same = (job.task, job.payload) == (new.task, new.payload)
        if unique.rule is UniqueRule.DEBOUNCE and refusal(self._table[Move.REPLACE], job, now=now) is None:
            after = effects.replaced(job, new, now)
            self._put(ledger, after, Move.REPLACE, job.state, now)
            return Enqueued(job.id, False, after.state, same, replaced=True)
        return Enqueued(job.id, False, job.state, same)
