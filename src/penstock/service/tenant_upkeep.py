"""Upkeep of the queues of every tenant: fires schedules, promotes delayed jobs, prunes old records."""

from penstock.core.job import QueueRef
from penstock.maintenance.loop import SWEEP, MaintenanceLoop, MaintenanceOptions
from penstock.schedules.ticker import Admission
from penstock.stores.protocol import Store


class TenantUpkeep:
    """The upkeep of all queues that tenants have or get, in one loop. Any number of processes may run one."""

    def __init__(self, store: Store, admission: Admission | None = None, *, sweep: float = SWEEP) -> None:
        self._upkeep = MaintenanceLoop(
            store, MaintenanceOptions(sweep=sweep), tenants=store.queues.list_tenants, admission=admission
        )

    def look_at(self, queue: QueueRef) -> None:
        """Look at a queue that may have new work for the upkeep."""
        self._upkeep.look_at(queue)

    async def run(self) -> None:
        """Run the upkeep until cancelled."""
        await self._upkeep.run()
