"""Keeps time for queues without running a job: schedules fire, delayed jobs come due, the old is removed."""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from penstock.core.errors import StoreError
from penstock.core.job import QueueRef
from penstock.scheduler.pruner import EVENTS_AGE, EVENTS_KEPT
from penstock.scheduler.scheduler import Scheduler
from penstock.scheduler.ticker import Admission
from penstock.stores.protocol import Store

_LOGGER: Final = logging.getLogger("penstock.scheduler")
TICK: Final = 5.0


class TimeKeeper:
    """Runs the duties of these queues, or of every queue that the tenant has or gets. Any number may run."""

    def __init__(
        self,
        store: Store,
        tenant: str,
        queues: Sequence[str] | None = None,
        *,
        tick: float = TICK,
        events_kept: int = EVENTS_KEPT,
        events_age: float = EVENTS_AGE,
        admission: Admission | None = None,
    ) -> None:
        self._store = store
        self._admission = admission
        self._tenant = tenant
        self._queues = queues
        self._tick = tick
        self._events_kept = events_kept
        self._events_age = events_age
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
        kept: dict[QueueRef, asyncio.Task[None]] = {}
        _LOGGER.info("scheduler started", extra={"tenant": self._tenant})
        try:
            while not self._stopping.is_set():
                for queue in await self._known():
                    if queue not in kept or kept[queue].done():
                        kept[queue] = asyncio.create_task(self._scheduler(queue).run())
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._tick):
                        await self._stopping.wait()
        finally:
            for each in kept.values():
                each.cancel()
            await asyncio.gather(*kept.values(), return_exceptions=True)
            _LOGGER.info("scheduler stopped", extra={"tenant": self._tenant})

    async def _known(self) -> list[QueueRef]:
        if self._queues is not None:
            return [QueueRef(self._tenant, name) for name in self._queues]
        try:
            return [info.queue for info in await self._store.queues(self._tenant)]
        except StoreError as error:
            _LOGGER.warning(
                "looking for queues failed, will repeat: %s", error, extra={"tenant": self._tenant}
            )
            return []

    def _scheduler(self, queue: QueueRef) -> Scheduler:
        return Scheduler(
            self._store,
            queue,
            tick=self._tick,
            events_kept=self._events_kept,
            events_age=self._events_age,
            admission=self._admission,
        )
