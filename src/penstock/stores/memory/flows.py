"""Flows in the memory store: parents that wait, children that end, and what is carried between queues."""

from collections.abc import Sequence
from itertools import islice

import msgspec

from penstock.core import effects, flows
from penstock.core.flows import Child, ChildEnding, JobRef
from penstock.core.job import Job, QueueRef
from penstock.core.moves import Beat, Move
from penstock.core.outcomes import Applied, Refusal, Refused
from penstock.core.states import State
from penstock.stores.absent import answers_absent
from penstock.stores.bounds import RELAY_LIMIT
from penstock.stores.memory.backend import Backend
from penstock.stores.memory.ledger import Ledger
from penstock.stores.values import Adoption, Relay, Spawn


class MemoryFlows:
    """Jobs that wait for other jobs."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    @answers_absent
    async def child_ended(self, queue: QueueRef, endings: Sequence[ChildEnding]) -> list[Applied | Refused]:
        with self._backend.lock:
            ledger, now = self._backend.existing(queue), self._backend.now()
            out = [self._child_ended(ledger, ending, now) for ending in endings]
            self._backend.refresh(ledger)
        self._backend.notify_after(ledger, out)
        return out

    def _child_ended(self, ledger: Ledger, ending: ChildEnding, now: int) -> Applied | Refused:
        parent = self._backend.allowed(ledger, Move.UNBLOCK, ending.parent, now)
        if isinstance(parent, Refused):
            return parent
        children = ledger.children.get(parent.id, {})
        child = children.get(ending.child)
        if child is None or child.is_done:
            return Refused(Refusal.STATE, parent.state)
        verdict = flows.verdict(ending.state, parent.child_policy)
        is_done = verdict is flows.Verdict.COUNTS
        children[ending.child] = Child(ending.child, is_done, ending.state, ending.result)
        fails = verdict is flows.Verdict.FAILS
        if not fails and not all(each.is_done for each in children.values()):
            return Applied(State.BLOCKED)
        after = effects.unblocked(parent, now, fails=fails, child=ending.child)
        self._backend.put(ledger, after, Move.UNBLOCK, parent.state, now)
        return Applied(after.state)

    @answers_absent
    async def adopt(self, queue: QueueRef, adoptions: Sequence[Adoption]) -> list[Applied | Refused]:
        with self._backend.lock:
            ledger, now = self._backend.existing(queue), self._backend.now()
            out: list[Applied | Refused] = []
            for adoption in adoptions:
                parent = self._backend.allowed(ledger, Move.UNBLOCK, adoption.parent, now)
                if isinstance(parent, Job):
                    children = ledger.children[parent.id]
                    for ref in adoption.children:
                        children.setdefault(ref, Child(ref))
                    out.append(Applied(parent.state))
                else:
                    out.append(parent)
            return out

    @answers_absent
    async def spawn(self, queue: QueueRef, lease: Beat, spawns: Sequence[Spawn]) -> Applied | Refused:
        with self._backend.lock:
            ledger, now = self._backend.existing(queue), self._backend.now()
            job = self._backend.allowed(ledger, Move.PROGRESS, lease.id, now, lease.token)
            if isinstance(job, Refused):
                return job
            children = tuple(JobRef(each.queue, each.job.id) for each in spawns)
            # Carried over in this order: the parents know of the children before these can end.
            for parent in job.parents:
                ledger.relay(parent.queue, Adoption(parent.id, children))
            for each in spawns:
                ledger.relay(each.queue, each.job)
            return Applied(job.state, job.cancel_requested)

    async def children(
        self, queue: QueueRef, job: str, *, after: int = 0, limit: int | None = None, results: bool = True
    ) -> list[Child]:
        end = None if limit is None else after + limit
        with self._backend.lock:
            ledger = self._backend.ledgers.get(queue)
            found = [] if ledger is None else list(ledger.children.get(job, {}).values())[after:end]
        return found if results else [msgspec.structs.replace(child, result=None) for child in found]

    async def list_relay_entries(
        self, queue: QueueRef, limit: int = RELAY_LIMIT, *, after: int = 0
    ) -> list[Relay]:
        with self._backend.lock:
            ledger = self._backend.ledgers.get(queue)
            entries = () if ledger is None else ledger.relays.values()
            return list(islice((entry for entry in entries if entry.number > after), limit))

    @answers_absent
    async def delete_relay_entries(self, queue: QueueRef, numbers: Sequence[int]) -> None:
        with self._backend.lock:
            ledger = self._backend.existing(queue)
            for number in numbers:
                ledger.relays.pop(number, None)
