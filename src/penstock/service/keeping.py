"""Keeps time for the queues of every tenant: schedules fire, delayed jobs come due, the old is removed."""

import asyncio
import logging
from typing import Final

from penstock.core.errors import StoreError
from penstock.core.reasons import Reasons
from penstock.scheduler.keeper import TimeKeeper
from penstock.scheduler.ticker import Admission
from penstock.stores.protocol import Store

_LOGGER: Final = logging.getLogger("penstock.service")
LOOK: Final = 5.0
"""Seconds between two looks for new tenants."""


class TenantKeeper:
    """A time keeper for each tenant that has queues, or gets some. Any number of processes may run one."""

    def __init__(self, store: Store, admission: Admission | None = None, *, look: float = LOOK) -> None:
        self._store = store
        self._admission = admission
        self._look = look
        self._kept: dict[str, asyncio.Task[None]] = {}
        self._reasons = Reasons()

    async def run(self) -> None:
        """Keep at it until cancelled."""
        try:
            while True:
                for tenant in await self._known():
                    if tenant not in self._kept or self._kept[tenant].done():
                        self._kept[tenant] = asyncio.create_task(self._keeper(tenant).run())
                await asyncio.sleep(self._look)
        finally:
            for task in self._kept.values():
                task.cancel()
            await asyncio.gather(*self._kept.values(), return_exceptions=True)

    def _keeper(self, tenant: str) -> TimeKeeper:
        return TimeKeeper(self._store, tenant, admission=self._admission)

    async def _known(self) -> list[str]:
        try:
            known = await self._store.tenants()
        except StoreError as error:
            if self._reasons.is_new(error):
                _LOGGER.warning("looking for tenants failed, will repeat: %s", error)
            return []
        self._reasons.over()
        return known
