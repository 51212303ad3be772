"""The scheduler: does the maintenance of queues, and fires their schedules, without executing jobs."""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from penstock.core.job import QueueRef
from penstock.maintenance.loop import SWEEP, TICK, MaintenanceLoop, MaintenanceOptions
from penstock.maintenance.pruner import EVENTS_AGE, EVENTS_KEPT
from penstock.stores.bounds import PROMOTE_LIMIT, RECOVER_LIMIT
from penstock.stores.claim_limits import checked_claim_limits
from penstock.stores.protocol import Store

__all__ = ["SWEEP", "TICK", "TimeKeeper"]

_LOGGER: Final = logging.getLogger("penstock.maintenance")


class TimeKeeper:
    """Runs the duties of these queues, or of every queue that the tenant has or gets. Any number may run.

    One batch promotes up to `promote_limit` jobs, and recovers up to `recover_limit`.
    """

    def __init__(
        self,
        store: Store,
        tenant: str,
        queues: Sequence[str] | None = None,
        *,
        tick: float = TICK,
        sweep: float = SWEEP,
        events_kept: int = EVENTS_KEPT,
        events_age: float = EVENTS_AGE,
        promote_limit: int = PROMOTE_LIMIT,
        recover_limit: int = RECOVER_LIMIT,
    ) -> None:
        self._tenant = tenant
        self._queues = None if queues is None else [QueueRef(tenant, name) for name in queues]
        limits = checked_claim_limits(promote_limit=promote_limit, recover_limit=recover_limit)
        self._options = MaintenanceOptions(
            tick=tick, sweep=sweep, events_kept=events_kept, events_age=events_age, limits=limits
        )
        self._upkeep = MaintenanceLoop(
            store, self._options, tenants=self._tenants if queues is None else None
        )
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping = asyncio.Event()

    def stop(self, now: bool = False) -> None:
        """Ask `run` to return, from any thread; nothing it does needs an end."""
        if self._loop is None:
            self._stopping.set()
        else:
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._stopping.set)

    async def run(self) -> None:
        """Keep time until stopped."""
        self._loop = asyncio.get_running_loop()
        about = {"tenant": self._tenant}
        _LOGGER.info("scheduler started", extra=about)
        if self._queues is None:
            works = [self._upkeep.run()]
        else:
            works = [self._upkeep.serve(queue, self._options) for queue in self._queues]
        running = [asyncio.ensure_future(work) for work in works]
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait([stopping, *running], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in (stopping, *running):
                each.cancel()
            await asyncio.gather(stopping, *running, return_exceptions=True)
            _LOGGER.info("scheduler stopped", extra=about)
        for each in running:
            if not each.cancelled():
                each.result()

    async def _tenants(self) -> Sequence[str]:
        return [self._tenant]
