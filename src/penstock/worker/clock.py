"""The clock a worker measures its own leases on."""

import time
from collections.abc import Callable

Clock = Callable[[], float]
"""Gives seconds that never step back."""

if hasattr(time, "CLOCK_BOOTTIME"):

    def boottime() -> float:
        """Seconds that go on while the machine is suspended, and never step."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

else:
    boottime = time.monotonic
