"""Runs webhooks in a process of the service: forwards events to deliveries, and sends them."""

import asyncio
import logging
import random
from contextlib import suppress
from typing import Final

from penstock.core.errors import PenstockError
from penstock.core.job import QueueRef
from penstock.core.repeated_failures import RepeatedFailures
from penstock.maintenance.loop import MaintenanceLoop
from penstock.service.egress.egress import Egress
from penstock.service.sealing import SecretSealer
from penstock.service.webhooks.deliveries import DeliveryLog
from penstock.service.webhooks.forwarder import WebhookForwarder
from penstock.service.webhooks.messages import QUEUE
from penstock.service.webhooks.repository import WebhookRepository
from penstock.service.webhooks.sender import WebhookSender
from penstock.stores.protocol import Store
from penstock.worker.worker import Worker

_LOGGER: Final = logging.getLogger("penstock.webhooks")
POLL: Final = 1.0
CONCURRENCY: Final = 16


class WebhookService:
    """Runs the relay, and a worker for each tenant that has webhooks, over an open store.

    Any number of processes may run one on the same store. `poll` is how often events are looked for, in
    seconds; `nudge` makes it look at once.
    """

    def __init__(
        self,
        store: Store,
        egress: Egress,
        *,
        sealer: SecretSealer | None = None,
        poll: float = POLL,
        concurrency: int = CONCURRENCY,
    ) -> None:
        self._store = store
        self._poll = poll
        self._concurrency = concurrency
        self.repository = WebhookRepository(store, egress, sealer)
        self._is_clear = sealer is None or not sealer.has_key
        self.log = DeliveryLog(store, self.repository)
        self._relay = WebhookForwarder(store, self.repository)
        self.sender = WebhookSender(store, self.repository, egress)
        self._upkeep = MaintenanceLoop(store)
        self._workers: dict[str, asyncio.Task[None]] = {}
        self._nudged = asyncio.Event()
        self._reasons = RepeatedFailures()

    def nudge(self) -> None:
        """Look for tenants and events now."""
        self._nudged.set()

    async def run(self) -> None:
        """Run until cancelled; deliveries in progress are then given back."""
        try:
            while True:
                self._nudged.clear()
                await self._round()
                with suppress(TimeoutError):
                    async with asyncio.timeout(random.uniform(0.8, 1.2) * self._poll):
                        await self._nudged.wait()
        finally:
            for worker in self._workers.values():
                worker.cancel()
            if self._workers:
                await asyncio.wait(self._workers.values())
            await self._relay.close()

    async def _round(self) -> None:
        try:
            tenants = await self._relay.tick()
        except PenstockError as error:
            if self._reasons.is_new(error):
                _LOGGER.warning("webhooks wait, will repeat: %s", error)
            return
        except Exception as error:
            if self._reasons.is_new(error):
                _LOGGER.exception("webhooks wait, will repeat")
            return
        if self._reasons.over():
            _LOGGER.info("webhooks go on")
        if tenants and self._is_clear:
            self._is_clear = False
            _LOGGER.warning("secrets of webhooks are stored in clear: set PENSTOCK_SECRET_KEY to seal them")
        for tenant in tenants:
            self._keep_working(tenant)

    def _keep_working(self, tenant: str) -> None:
        worker = self._workers.get(tenant)
        if worker is not None and not worker.done():
            return
        if worker is not None and (error := worker.exception()) is not None:
            _LOGGER.warning("deliveries stopped and begin again: %s", error, extra={"tenant": tenant})
        made = Worker(
            self._store,
            QueueRef(tenant, QUEUE),
            self.sender.registry(),
            concurrency=self._concurrency,
            upkeep=self._upkeep,
        )
        self._workers[tenant] = asyncio.create_task(made.run())
