"""Whether a worker process is alive and ready, as a thread sees it that handlers cannot block."""

import asyncio
from typing import Final

from penstock.core.errors import StoreError
from penstock.stores.values import WorkerState
from penstock.worker.registration import Registration
from penstock.worker.renewer import LeaseRenewer

LOOP_SILENCE: Final = 30.0
"""Seconds without a turn of the event loop after which the process does not count as alive."""
POLL_SILENCE: Final = 60.0
"""The same for a queue with a free slot that was not polled; three poll intervals where that is longer."""
READY_TIMEOUT: Final = 2.0
"""Seconds that the store has to answer."""


class WorkerHealth:
    """What probes and process managers are told of a worker process. For any thread.

    A store that is away makes a process unready, and not dead: to start it again would mend nothing.
    """

    def __init__(self, registration: Registration, renewer: LeaseRenewer) -> None:
        self._registration = registration
        self._renewer = renewer

    def faults(self) -> list[str]:
        """Why the process is not alive; nothing while it is, or while it still starts."""
        registration = self._registration
        now = registration.clock()
        if not registration.is_held:
            return []
        if (silence := now - registration.lag.beat_at) > LOOP_SILENCE:
            return [f"the event loop has been blocked for {silence:.0f} s"]
        found = []
        for each in registration.queues:
            silence = each.silence(now)
            if silence > max(POLL_SILENCE, 3 * each.poll):
                found.append(f"queue {each.queue} has not been polled for {silence:.0f} s")
        return found

    @property
    def is_stopping(self) -> bool:
        """True once the process claims no more."""
        return self._registration.state is WorkerState.SHUTTING_DOWN

    async def unready(self) -> str | None:
        """Why the process is not ready; None when it works and the store answers."""
        if self.is_stopping:
            return "the worker shuts down"
        if not self._registration.queues and self._registration.polled_at is None:
            return "the worker starts"
        try:
            async with asyncio.timeout(READY_TIMEOUT):
                await self._renewer.check_store()
        except (StoreError, TimeoutError):
            return "the store does not answer"
        return None

    @property
    def slots(self) -> tuple[int, int]:
        """The taken slots, and all there are."""
        return sum(each.slots.taken for each in self._registration.queues), self._registration.slots
