"""Hears of what a worker is asked to do while it runs: to cancel a job, or to follow an order."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from penstock.core.errors import StoreError
from penstock.core.job import QueueRef
from penstock.stores.bounds import CHUNK_JOBS
from penstock.stores.protocol import HasNotifier, HasReads
from penstock.stores.values import Topic
from penstock.worker.backoff import StoreBackoff
from penstock.worker.delivery import Delivery

_LOGGER: Final = logging.getLogger("penstock.worker")
SILENCE: Final = 60.0
"""Seconds that one wait for a notification takes at most."""
SHORTEST_PAUSE: Final = 0.01
LONGEST_PAUSE: Final = 1.0
"""Seconds between two looks. The pause grows while notifications are of something else."""
LONGEST_PAUSE_SERVER: Final = 0.05
"""The same for a store that is a server: its notifications are of what they name."""
CROWD_DELAY: Final = 1.0
"""Seconds that jobs of one queue among many run before that queue is subscribed to."""
READ_JOBS: Final = min(100, CHUNK_JOBS)
"""Jobs that one read asks for: their payloads come along."""


class ControlListener:
    """Calls `look` when a notification says that there may be something; `look` is true where there was.

    A notification says neither what it is about nor for which worker, and a store may notify too often. So a
    look is a read, and looks that find nothing are made less often. What no notification tells, the next
    renewal of the lease or of the registry's entry does.
    """

    def __init__(
        self,
        store: HasNotifier,
        queue: QueueRef,
        look: Callable[[], Awaitable[bool]],
        about: dict[str, object],
        *,
        is_server: bool,
    ) -> None:
        self._store = store
        self._queue = queue
        self._look = look
        self._longest_pause = LONGEST_PAUSE_SERVER if is_server else LONGEST_PAUSE
        self._outage = StoreBackoff(_LOGGER, "listening for requests", about)

    async def run(self, *, starts_when: Callable[[], bool] | None = None) -> None:
        """Listen until cancelled; with `starts_when`, subscribe once that is true."""
        while starts_when is not None:
            await asyncio.sleep(CROWD_DELAY)
            if starts_when():
                break
        while True:
            try:
                async with self._store.notifier.subscribe(self._queue, Topic.CONTROL) as subscription:
                    # What was asked for before this nobody was notified of.
                    await self._look()
                    pause, quiet_since = SHORTEST_PAUSE, float("-inf")
                    while True:
                        if not await subscription.wait(SILENCE):
                            continue
                        now = asyncio.get_running_loop().time()
                        is_found = await self._look()
                        if is_found or now - quiet_since > self._longest_pause:
                            pause = SHORTEST_PAUSE
                        else:
                            pause = min(self._longest_pause, 2 * pause)
                        self._outage.over()
                        await asyncio.sleep(pause)
                        quiet_since = asyncio.get_running_loop().time()
            except StoreError as error:
                await asyncio.sleep(self._outage.failed(error))


class CancelReader:
    """Looks in the store whether the cancel of a job that runs here was requested."""

    def __init__(
        self,
        store: HasReads,
        queue: QueueRef,
        held: Mapping[str, Delivery],
        cancel_requested: Callable[[Delivery], None],
    ) -> None:
        self._store = store
        self._queue = queue
        self._held = held
        self._cancel_requested = cancel_requested

    def has_jobs(self) -> bool:
        """True while anything runs."""
        return bool(self._held)

    async def look(self) -> bool:
        """Tell the handlers of jobs whose cancel was requested; True where there were any."""
        running = [each for each in self._held.values() if each.is_executing and not each.cancel_requested]
        is_found = False
        for start in range(0, len(running), READ_JOBS):
            some = running[start : start + READ_JOBS]
            jobs = await self._store.reads.get(self._queue, [each.job.id for each in some])
            for delivery, job in zip(some, jobs, strict=True):
                if job is None or job.token != delivery.token or not job.cancel_requested:
                    continue
                if delivery.is_executing and not delivery.cancel_requested:
                    self._cancel_requested(delivery)
                    is_found = True
        return is_found
