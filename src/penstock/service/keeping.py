"""Keeps time for the queues of every tenant: schedules fire, delayed jobs come due, the old is removed."""

from penstock.core.job import QueueRef
from penstock.scheduler.ticker import Admission
from penstock.scheduler.upkeep import SWEEP, Upkeep, UpkeepOptions
from penstock.stores.protocol import Store


class TenantKeeper:
    """The upkeep of all queues that tenants have or get, in one loop. Any number of processes may run one."""

    def __init__(self, store: Store, admission: Admission | None = None, *, sweep: float = SWEEP) -> None:
        self._upkeep = Upkeep(store, UpkeepOptions(sweep=sweep), tenants=store.tenants, admission=admission)

    def look_at(self, queue: QueueRef) -> None:
        """Something may be due there that was not known before."""
        self._upkeep.look_at(queue)

    async def run(self) -> None:
        """Keep at it until cancelled."""
        await self._upkeep.run()
