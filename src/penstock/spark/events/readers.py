"""Who reads: streams are registered, so that what they have not read yet is not trimmed."""

import asyncio
import logging
import secrets
import time
from collections.abc import Mapping
from typing import Final

from penstock.core.cursors import read_cursor
from penstock.core.errors import CursorLostError, StoreError
from penstock.core.job import QueueRef
from penstock.spark.events.planning import each_of
from penstock.stores.protocol import Store

UNREGISTERED: Final = "none"
RENEWED_SECONDS: Final = 3_600.0
"""How often a place is told again though it did not change; its lease is much longer."""
_LOG: Final = logging.getLogger("penstock.spark")


def made_up_name() -> str:
    """A name for a stream that was given none."""
    return f"spark-{secrets.token_hex(4)}"


class Registration:
    """The places of one reader, told when they change and now and then."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._told: dict[QueueRef, tuple[str, float]] = {}
        self._telling = asyncio.Lock()

    async def keep(self, store: Store, places: Mapping[QueueRef, str]) -> None:
        """Tell how far each queue is read. A place that cannot be kept is told of, and stops nobody."""

        async def tell(queue: QueueRef) -> None:
            try:
                await store.readers.register_reader(queue, self.name, places[queue])
            except (CursorLostError, StoreError) as error:
                _LOG.warning("the place of reader %s in queue %s is not kept: %s", self.name, queue, error)
            else:
                self._told[queue] = places[queue], time.monotonic()

        async with self._telling:
            await each_of([queue for queue, cursor in places.items() if self._is_news(queue, cursor)], tell)

    def _is_news(self, queue: QueueRef, cursor: str) -> bool:
        if queue not in self._told:
            return True
        told, at = self._told[queue]
        before, after = read_cursor("cursor", told).place, read_cursor("cursor", cursor).place
        return before < after or (before == after and time.monotonic() - at > RENEWED_SECONDS)
