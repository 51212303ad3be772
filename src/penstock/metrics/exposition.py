"""What a scrape gets of a process, in time and whatever the store does. Needs the extra `prometheus`."""

import asyncio
from concurrent.futures import CancelledError
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Final

from penstock.metrics.families import Sample
from penstock.metrics.prometheus import exposition
from penstock.metrics.recorder import Metrics
from penstock.metrics.sampler import WAIT, Sampler
from penstock.metrics.snapshot import Sees, samples

LOOP_WAIT: Final = WAIT + 1.0
"""Seconds that a thread waits for the event loop; a handler may block it."""


class Exposition:
    """The numbers of a process as text."""

    def __init__(self, metrics: Metrics, sampler: Sampler) -> None:
        self.metrics = metrics
        self.sampler = sampler
        self.loop_wait = LOOP_WAIT
        self._loop: asyncio.AbstractEventLoop | None = None

    async def run(self) -> None:
        """Measure the event loop until cancelled; samples are read on it."""
        self._loop = asyncio.get_running_loop()
        await self.sampler.run()

    async def text(self, sees: Sees | None = None) -> bytes:
        """The text, after a new sample where the store answers in time; on the event loop of the store."""
        await self.sampler.refresh()
        return exposition(samples(self.metrics, self.sampler, sees))

    def text_from_thread(self) -> bytes:
        """The same, asked for in another thread; it comes also while a handler blocks the event loop."""
        return exposition(self.samples_from_thread())

    def samples_from_thread(self) -> list[Sample]:
        """What the text is made of."""
        if self._loop is None or not self._refreshed(self._loop):
            self.sampler.is_stale = True
        return list(samples(self.metrics, self.sampler))

    def _refreshed(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Ask the event loop for a sample; False where it does not come to that in time."""
        refreshing = self.sampler.refresh()
        try:
            asked = asyncio.run_coroutine_threadsafe(refreshing, loop)
        except RuntimeError:
            # The loop is closed, and the process about to end.
            refreshing.close()
            return False
        try:
            asked.result(self.loop_wait)
        except (FutureTimeoutError, CancelledError):
            asked.cancel()
            return False
        return True
