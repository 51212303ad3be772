"""Declares and schedules again when the store comes back without what it had."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from penstock.core.errors import StoreError
from penstock.core.job import QueueRef
from penstock.stores.protocol import Store

_LOGGER: Final = logging.getLogger("penstock.worker")
EVERY: Final = 5.0
"""Seconds between two looks."""


class Restorer:
    """Looks whether queues were made anew, and calls `restore` if so. Any number of processes may."""

    def __init__(
        self,
        store: Store,
        queues: Callable[[], Sequence[QueueRef]],
        restore: Callable[[], Awaitable[object]],
    ) -> None:
        self._store = store
        self._queues = queues
        self._restore = restore
        self._marks: dict[QueueRef, str] | None = None
        self._failure = ""

    async def run(self) -> None:
        """Keep looking until cancelled, or until it is clear that this store loses nothing."""
        while await self.look():  # noqa: ASYNC110 (the store tells nobody)
            await asyncio.sleep(random.uniform(0.8, 1.2) * EVERY)

    async def look(self) -> bool:
        """Look once; False when there is no need to look again."""
        try:
            # What is missing is made, so that it has a mark.
            marks = {queue: (await self._store.open_queue(queue)).made for queue in self._queues()}
            if self._marks is not None and marks != self._marks:
                await self._restore()
                _LOGGER.warning("the store had lost queues: what the app says of them is declared again")
        except StoreError:
            # Workers tell of that.
            return True
        except Exception as error:  # noqa: BLE001 (jobs that run are not given up for this)
            if str(error) != self._failure:
                self._failure = str(error)
                _LOGGER.error(
                    "the store had lost queues, and what the app says of them cannot be declared again: %s",
                    error,
                )
            return True
        self._marks, self._failure = marks, ""
        return any(marks.values())
