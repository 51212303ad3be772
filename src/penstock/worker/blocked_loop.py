"""What is done when a handler blocks the event loop of a worker that was told to stop."""

import asyncio
import logging
import os
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, Protocol, runtime_checkable

from penstock.core.errors import StoreError

_LOGGER: Final = logging.getLogger("penstock.worker")
GRACE: Final = 5.0
"""Seconds after the drain in which a loop that was held up may come back."""
GIVE_BACK: Final = 5.0
"""Seconds that giving back has to be answered."""
LOG: Final = 1.0
"""Seconds that logging has: where its lines go may be what holds everything up."""


@runtime_checkable
class Holder(Protocol):
    """A worker: something that holds jobs."""

    shutdown_timeout: float

    async def give_back(self) -> int:
        """Give back what runs; on any event loop, for the worker's own does not answer."""
        ...


class Watch:
    """Ends the process, its jobs given back, when the loop does not heed a signal in time.

    In a thread: the loop's own is the one that is held up.
    """

    def __init__(self, runners: Sequence[object]) -> None:
        self._holders = [each for each in runners if isinstance(each, Holder)]
        self._timer: threading.Timer | None = None

    def begin(self, is_urgent: bool) -> None:
        """A signal came; the loop has as long as a drain may take, or a moment."""
        self.end()
        if not self._holders:
            return
        drain = max(each.shutdown_timeout for each in self._holders)
        self._timer = threading.Timer(GRACE if is_urgent else drain + GRACE, self._leave)
        self._timer.daemon = True
        self._timer.start()

    def end(self) -> None:
        """The loop is about to do what the signal says."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _leave(self) -> None:
        _within(
            LOG,
            partial(_LOGGER.error, "the event loop is blocked: the process ends, its jobs are given back"),
        )
        _within(len(self._holders) * GIVE_BACK + LOG, lambda: asyncio.run(self._give_back()))
        _within(LOG, logging.shutdown)
        os._exit(1)

    async def _give_back(self) -> None:
        for holder in self._holders:
            with suppress(StoreError, TimeoutError):
                async with asyncio.timeout(GIVE_BACK):
                    await holder.give_back()


def _within(seconds: float, work: Callable[[], object]) -> None:
    """Whatever becomes of it, go on then."""

    def do() -> None:
        with suppress(Exception):
            work()

    thread = threading.Thread(target=do, daemon=True)
    thread.start()
    thread.join(seconds)
