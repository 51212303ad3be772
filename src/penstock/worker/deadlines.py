"""Execution timeouts: one timer per bucket of deadlines instead of one per job."""

import asyncio
import math
from collections.abc import Callable
from typing import Final

from penstock.worker.delivery import Delivery

FINE: Final = 0.05
COARSE: Final = 0.5
"""Seconds that deadlines are rounded up to, so that jobs share timers; fine for timeouts under 10 s."""


class Deadlines:
    """Calls back for each delivery that is still running at its deadline."""

    def __init__(self, late: Callable[[Delivery], None]) -> None:
        self._late = late
        self._loop = asyncio.get_running_loop()
        self._buckets: dict[float, tuple[set[Delivery], asyncio.TimerHandle]] = {}

    def add(self, delivery: Delivery, now: float, timeout: float) -> None:
        """Watch the delivery for `timeout` seconds from `now` on the loop's clock."""
        width = FINE if timeout < 10 else COARSE
        at = math.ceil((now + timeout) / width) * width
        found = self._buckets.get(at)
        if found is None:
            timer = self._loop.call_at(at, self._fire, at)
            found = self._buckets[at] = (set(), timer)
        bucket = found[0]
        bucket.add(delivery)
        delivery.bucket = bucket

    def remove(self, delivery: Delivery) -> None:
        """The delivery ended in time, or its time is no longer of interest."""
        if delivery.bucket is not None:
            delivery.bucket.discard(delivery)
            delivery.bucket = None

    def close(self) -> None:
        """Forget everything."""
        for _, timer in self._buckets.values():
            timer.cancel()
        self._buckets.clear()

    def _fire(self, at: float) -> None:
        bucket, _ = self._buckets.pop(at)
        for delivery in list(bucket):
            delivery.bucket = None
            self._late(delivery)
