"""Declares and schedules again when the store comes back without what it had."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from penstock.app.preparing import UNUSABLE
from penstock.core.errors import StoreError
from penstock.core.job import QueueRef
from penstock.stores.protocol import Store

_LOGGER: Final = logging.getLogger("penstock.worker")
EVERY: Final = 5.0
"""Seconds between two looks."""


class Restorer:
    """Looks whether queues were made anew, and calls `restore` with them if so. Any number of processes may.

    A queue that cannot be reached is looked at the next time. `is_behind` says that not all of the app's
    schedules could be put when its workers started; `restore` puts them.
    """

    def __init__(
        self,
        store: Store,
        queues: Callable[[], Sequence[QueueRef]],
        restore: Callable[[Sequence[QueueRef]], Awaitable[object]],
    ) -> None:
        self._store = store
        self._queues = queues
        self._restore = restore
        self._marks: dict[QueueRef, str] = {}
        self._failure = ""
        self.is_behind = False

    async def run(self) -> None:
        """Keep looking until cancelled, or until it is clear that this store loses nothing."""
        while await self.look():  # noqa: ASYNC110 (the store tells nobody)
            await asyncio.sleep(random.uniform(0.8, 1.2) * EVERY)

    async def look(self) -> bool:
        """Look once; False when there is no need to look again."""
        marks: dict[QueueRef, str] = {}
        is_unreached = False
        try:
            for queue in self._queues():
                try:
                    # What is missing is made, so that it has a mark.
                    marks[queue] = (await self._store.queues.open_queue(queue)).made
                except UNUSABLE:
                    is_unreached = True
            lost = [queue for queue, mark in marks.items() if self._marks.get(queue, mark) != mark]
            if lost or self.is_behind:
                await self._restore(lost)
                self.is_behind = False
            if lost:
                _LOGGER.warning("the store lost queues: declared them again as the app says")
        except StoreError:
            # Workers tell of that.
            return True
        except Exception as error:  # noqa: BLE001 (jobs that run are not given up for this)
            if str(error) != self._failure:
                self._failure = str(error)
                _LOGGER.error(
                    "the store lost queues, and the app could not declare them again: %s",
                    error,
                )
            return True
        self._marks |= marks
        self._failure = ""
        return is_unreached or any(marks.values())
