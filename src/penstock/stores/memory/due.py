"""Which queues of the memory store need upkeep."""

from collections.abc import Sequence

from penstock.core.clocks import has_ended
from penstock.core.job import QueueRef
from penstock.core.states import State
from penstock.stores.bounds import DUE_LIMIT
from penstock.stores.due import UpkeepFacts, due_queue
from penstock.stores.memory.ledger import Ledger
from penstock.stores.memory.room import Room
from penstock.stores.values import DuePage

_PRUNABLE = frozenset({State.COMPLETED, State.FAILED, State.CANCELLED})


class MemoryDue(Room):
    """Looks at the ledgers of a tenant."""

    async def due_queues(
        self,
        tenant: str,
        names: Sequence[str] | None = None,
        *,
        within_ms: int = 0,
        events_kept: int | None = None,
        after: str = "",
        limit: int = DUE_LIMIT,
    ) -> DuePage:
        with self._lock:
            now = self._now()
            if names is None:
                known = sorted(ref.name for ref in self._ledgers if ref.tenant == tenant and ref.name > after)
                wanted = known[: max(1, limit)]
                more = wanted[-1] if len(known) > len(wanted) else None
            else:
                wanted, more = list(names), None
            found = [
                due_queue(name, _facts(ledger, now), now=now, within_ms=within_ms, events_kept=events_kept)
                for name in wanted
                if (ledger := self._ledgers.get(QueueRef(tenant, name))) is not None
            ]
        return DuePage([each for each in found if each is not None], now, more)


def _facts(ledger: Ledger, now: int) -> UpkeepFacts:
    delayed = ledger.first_delayed()
    deadlines = [job.deadline or 0 for job in ledger.leased()]
    instants = [each.next_at for each in ledger.schedules.values() if not each.paused]
    kept = [
        (job.ended_at or 0) + job.options.retention_ms
        for job in ledger.jobs.values()
        if job.state in _PRUNABLE
    ]
    kept += [held.until for held in ledger.keys.values() if held.until is not None]
    kept += [held.until for held in ledger.uniques.values() if held.job not in ledger.jobs]
    return UpkeepFacts(
        visible_at=None if delayed is None else delayed.visible_at,
        first_deadline=min(deadlines, default=None),
        has_far_lease=any(
            has_ended(job.deadline, job.lease_ms, now) for job in ledger.leased() if (job.deadline or 0) > now
        ),
        next_instant=min((each for each in instants if each is not None), default=None),
        has_relays=bool(ledger.relays),
        prune_at=min(kept, default=None),
        events=len(ledger.log),
    )
