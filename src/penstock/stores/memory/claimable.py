"""Which queues of the memory store have something to claim."""

from collections.abc import Sequence

from penstock.core.job import QueueRef
from penstock.core.states import State
from penstock.stores.claimable import ClaimFacts, claimable_at
from penstock.stores.memory.ledger import Ledger
from penstock.stores.memory.room import Room
from penstock.stores.values import ClaimablePage


class MemoryClaimable(Room):
    """Looks at the ledgers of a tenant."""

    async def claimable_queues(
        self, tenant: str, names: Sequence[str], *, within_ms: int = 0
    ) -> ClaimablePage:
        found: dict[str, int] = {}
        with self._lock:
            now = self._now()
            for name in names:
                ledger = self._ledgers.get(QueueRef(tenant, name))
                at = None if ledger is None else claimable_at(_facts(ledger), now=now, within_ms=within_ms)
                if at is not None:
                    found[name] = at
        return ClaimablePage(found, now)


def _facts(ledger: Ledger) -> ClaimFacts:
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
