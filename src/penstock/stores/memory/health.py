"""What the memory store is, and its fsck."""

from penstock.core.job import QueueRef
from penstock.core.states import State
from penstock.stores.memory.backend import Backend
from penstock.stores.values import Durability, Finding, StoreInfo


class MemoryHealth:
    """Says what the store is, and compares records with counts."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def info(self) -> StoreInfo:
        return StoreInfo("memory", "memory://", Durability.MEMORY, "-", 1, self._backend.offset_ms)

    async def check(self, queue: QueueRef) -> list[Finding]:
        with self._backend.lock:
            ledger = self._backend.ledgers.get(queue)
            if ledger is None:
                return []
            found = [
                Finding("an active job without a lease", job.id)
                for job in ledger.jobs.values()
                if job.state is State.ACTIVE and (job.token is None or job.deadline is None)
            ]
            for state in State:
                count = sum(job.state is state for job in ledger.jobs.values())
                if count != ledger.counts[state]:
                    found.append(Finding(f"{count} jobs are {state}, and {ledger.counts[state]} are counted"))
            return found
