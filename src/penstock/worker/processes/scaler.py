"""Scales the processes of a supervisor: looks, decides by the rules of the core, acts, and keeps why."""

import asyncio
import logging
import os
import socket
from collections.abc import Awaitable, Mapping
from typing import Final, Protocol

from penstock.core.errors import StoreError
from penstock.core.repeated_failures import RepeatedFailures
from penstock.core.scaling import Autoscaler, Decision, Rules
from penstock.stores.protocol import HasClock, HasKeyValue, HasQueues, HasReads, HasWorkers
from penstock.worker.clock import Clock, boottime
from penstock.worker.processes.measuring import Measuring
from penstock.worker.processes.scaling_log import ScalingLog
from penstock.worker.processes.supervisor import Supervisor

_LOGGER: Final = logging.getLogger("penstock.worker")
CHECK: Final = 10.0
"""Seconds between two samples: as often as workers renew their entries."""
ANSWER: Final = 10.0
"""Seconds that the store has to answer for one sample."""


class _Backend(HasReads, HasQueues, HasWorkers, HasKeyValue, HasClock, Protocol):
    """What this module uses of a store."""

    async def open(self) -> None: ...

    async def close(self) -> None: ...


class ProcessScaler:
    """Adds and removes processes of a supervisor. While the store is away, nothing changes."""

    def __init__(
        self,
        store: _Backend,
        tenant: str,
        slots: Mapping[str, int],
        supervisor: Supervisor,
        rules: Rules,
        *,
        clock: Clock = boottime,
        check: float = CHECK,
    ) -> None:
        self._store = store
        self._supervisor = supervisor
        self._autoscaler = Autoscaler(rules)
        self._measuring = Measuring(store, tenant, slots, clock)
        self._log = ScalingLog(store, tenant)
        self._check = check
        self._host = socket.gethostname()
        self._about = {"tenant": tenant}
        self._failures = RepeatedFailures()

    async def run(self) -> None:
        """Open the store, then look and decide until cancelled."""
        while not await self._reaches(self._store.open()):  # noqa: ASYNC110 (nothing notifies of it)
            await asyncio.sleep(self._check)
        try:
            while True:
                await asyncio.sleep(self._check)
                await self._reaches(self.step())
        finally:
            await self._store.close()

    async def _reaches(self, call: Awaitable[object]) -> bool:
        """Make a call to the store in a bounded time; False where it does not answer."""
        try:
            async with asyncio.timeout(ANSWER):
                await call
        except (StoreError, TimeoutError) as error:
            if self._failures.is_new(error):
                _LOGGER.warning("the autoscaler cannot use the store, retrying: %s", error, extra=self._about)
            return False
        if self._failures.over():
            _LOGGER.info("the autoscaler uses the store again", extra=self._about)
        return True

    async def step(self) -> Decision | None:
        """Look once; what was decided and done."""
        pids = self._supervisor.pids
        workers = await self._measuring.workers()
        own = [each for each in workers if each.host == self._host and each.pid in pids]
        sample = await self._measuring.sample(workers, own, self._supervisor.wanted)
        decision = self._autoscaler.decide(sample)
        if decision is not None:
            self._supervisor.resize(decision.wanted, idle=[each.pid for each in own if not each.taken])
            _LOGGER.info(
                "worker processes: %d, were %d: %s",
                decision.wanted,
                decision.units,
                decision.reason,
                extra=self._about,
            )
            await self._log.note(decision, scaler=f"{self._host}:{os.getpid()}", unit="processes")
        return decision
