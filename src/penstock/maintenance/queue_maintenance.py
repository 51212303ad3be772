"""The maintenance of one queue, for its worker."""

from collections.abc import Callable

from penstock.core.job import QueueRef
from penstock.maintenance.duties import Result
from penstock.maintenance.loop import SWEEP, MaintenanceLoop, MaintenanceOptions
from penstock.maintenance.pruner import EVENTS_AGE, EVENTS_KEPT
from penstock.maintenance.reclaimer import holds_none
from penstock.stores.claim_limits import CLAIM_LIMITS, ClaimLimits
from penstock.stores.protocol import Store
from penstock.stores.values import Duty


class QueueMaintenance:
    """Runs every duty of one queue until cancelled. Many processes may do so for the same queue.

    With `upkeep`, it shares that loop with other queues of the process; otherwise it has its own.
    """

    def __init__(
        self,
        store: Store,
        queue: QueueRef,
        *,
        tick: float,
        sweep: float = SWEEP,
        events_kept: int = EVENTS_KEPT,
        events_age: float = EVENTS_AGE,
        limits: ClaimLimits = CLAIM_LIMITS,
        upkeep: MaintenanceLoop | None = None,
        is_held: Callable[[str], bool] = holds_none,
    ) -> None:
        self._queue = queue
        self._options = MaintenanceOptions(
            tick=tick, sweep=sweep, events_kept=events_kept, events_age=events_age, limits=limits
        )
        self._upkeep = upkeep or MaintenanceLoop(store, self._options, is_held=is_held)

    async def run(self) -> None:
        """Do the maintenance until cancelled."""
        await self._upkeep.serve(self._queue, self._options)

    def nudge(self) -> None:
        """Relay entries were written by this process: deliver them without waiting for a notification."""
        self._upkeep.nudge(self._queue)

    async def tick(self) -> bool:
        """Do every duty once; True when one of them has more to do."""
        return await self._upkeep.duties(self._queue).do_all()

    async def relay(self) -> None:
        """Deliver the relay entries to other queues, in bounded batches until none is left."""
        if await self._upkeep.duties(self._queue).do(Duty.RELAY) is Result.MORE:
            self.nudge()
