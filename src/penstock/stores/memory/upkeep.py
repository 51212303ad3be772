"""Which queues of the memory store need upkeep, and which have something to claim."""

from collections.abc import Sequence

from penstock.core.clocks import has_ended
from penstock.core.job import QueueRef
from penstock.core.states import State
from penstock.stores.bounds import DUE_LIMIT
from penstock.stores.claimable import ClaimFacts, claimable_at
from penstock.stores.due import UpkeepFacts, due_queue
from penstock.stores.memory.backend import Backend
from penstock.stores.memory.ledger import Ledger
from penstock.stores.values import ClaimablePage, DuePage

_PRUNABLE = frozenset({State.COMPLETED, State.FAILED, State.CANCELLED})


class MemoryUpkeep:
    """Looks at the ledgers of a tenant."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def claimable_queues(
        self, tenant: str, names: Sequence[str], *, within_ms: int = 0
    ) -> ClaimablePage:
        found: dict[str, int] = {}
        with self._backend.lock:
            now = self._backend.now()
            for name in names:
                ledger = self._backend.ledgers.get(QueueRef(tenant, name))
                at = (
                    None
                    if ledger is None
                    else claimable_at(_claim_facts(ledger), now=now, within_ms=within_ms)
                )
                if at is not None:
                    found[name] = at
        return ClaimablePage(found, now)

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
        with self._backend.lock:
            now = self._backend.now()
            if names is None:
                known = sorted(
                    ref.name for ref in self._backend.ledgers if ref.tenant == tenant and ref.name > after
                )
                wanted = known[: max(1, limit)]
                more = wanted[-1] if len(known) > len(wanted) else None
            else:
                wanted, more = list(names), None
            found = [
                due_queue(
                    name, _upkeep_facts(ledger, now), now=now, within_ms=within_ms, events_kept=events_kept
                )
                for name in wanted
                if (ledger := self._backend.ledgers.get(QueueRef(tenant, name))) is not None
            ]
        return DuePage([each for each in found if each is not None], now, more)


def _claim_facts(ledger: Ledger) -> ClaimFacts:
    delayed, pause = ledger.first_delayed(), ledger.info.pause
    has_pending = bool(ledger.counts[State.PENDING])
    if ledger.declared.mode.has_keys:
        has_pending = ledger.lanes.next() is not None
    return ClaimFacts(
        has_pending=has_pending,
        visible_at=None if delayed is None else delayed.visible_at,
        held_until=min(ledger.lanes.held_until(), default=None),
        is_paused=pause is not None,
        paused_until=None if pause is None else pause.until,
    )


def _upkeep_facts(ledger: Ledger, now: int) -> UpkeepFacts:
    delayed = ledger.first_delayed()
    deadlines = [job.deadline or 0 for job in ledger.leased()]
    instants = [each.next_at for each in ledger.schedules.values() if not each.paused]
    prune_times = [
        (job.ended_at or 0) + job.options.retention_ms
        for job in ledger.jobs.values()
        if job.state in _PRUNABLE
    ]
    prune_times += [held.until for held in ledger.keys.values() if held.until is not None]
    prune_times += [held.until for held in ledger.uniques.values() if held.job not in ledger.jobs]
    return UpkeepFacts(
        visible_at=None if delayed is None else delayed.visible_at,
        first_deadline=min(deadlines, default=None),
        has_far_lease=any(
            has_ended(job.deadline, job.lease_ms, now) for job in ledger.leased() if (job.deadline or 0) > now
        ),
        next_instant=min((each for each in instants if each is not None), default=None),
        has_relays=bool(ledger.relays),
        prune_at=min(prune_times, default=None),
        events=len(ledger.log),
    )
