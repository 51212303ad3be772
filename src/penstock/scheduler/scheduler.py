"""The duties of a queue that no job waits for: promote, recover, prune, trim, on a tick."""

import asyncio
import logging
import random
from typing import Final, Protocol

from penstock.core.errors import StoreError
from penstock.core.job import QueueRef
from penstock.scheduler.promoter import Promoter
from penstock.scheduler.pruner import EVENTS_AGE, EVENTS_KEPT, Pruner, Trimmer
from penstock.scheduler.reclaimer import Reclaimer
from penstock.stores.protocol import Store

_LOGGER: Final = logging.getLogger("penstock.scheduler")
ROUNDS: Final = 20
"""Batches per duty and tick; what is left then is done a moment later."""
SOON: Final = 0.2


class Duty(Protocol):
    """Something that is done in bounded batches."""

    async def tick(self) -> bool:
        """Do one batch; True when there may be more."""
        ...


class Scheduler:
    """Runs every duty of one queue each `tick` seconds. Every worker has one, and none is the leader."""

    def __init__(
        self,
        store: Store,
        queue: QueueRef,
        *,
        tick: float,
        events_kept: int = EVENTS_KEPT,
        events_age: float = EVENTS_AGE,
    ) -> None:
        self._queue = queue
        self._tick = tick
        self._duties: tuple[Duty, ...] = (
            Promoter(store, queue),
            Reclaimer(store, queue),
            Pruner(store, queue),
            Trimmer(store, queue, kept=events_kept, age=events_age),
        )
        self._has_failed = False

    async def run(self) -> None:
        """Tick until cancelled. A store that fails is met again at the next tick."""
        # Workers that start together do not tick together.
        await asyncio.sleep(random.uniform(0, self._tick))
        while True:
            more = False
            try:
                more = await self.tick()
                self._has_failed = False
            except StoreError as error:
                if not self._has_failed:
                    _LOGGER.warning(
                        "tick failed, will repeat: %s",
                        error,
                        extra={"tenant": self._queue.tenant, "queue": self._queue.name},
                    )
                self._has_failed = True
            await asyncio.sleep(min(SOON, self._tick) if more else random.uniform(0.8, 1.2) * self._tick)

    async def tick(self) -> bool:
        """Do every duty once; True when one of them has more to do."""
        more = False
        for duty in self._duties:
            for _ in range(ROUNDS):
                if not await duty.tick():
                    break
            else:
                more = True
        return more
