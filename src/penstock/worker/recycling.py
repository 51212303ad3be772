"""Ends a worker process that has done its share, so that a fresh one takes its place."""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from penstock.core.errors import OptionError
from penstock.worker.registration import Registration
from penstock.worker.status import resident_memory

_LOGGER: Final = logging.getLogger("penstock.worker")
CHECK: Final = 0.5
"""Seconds between two looks at what the process has done and holds."""
MAX_JOBS: Final = 1_000_000_000


class Recycling:
    """Stops a process after so many jobs, or with so much memory. What runs then is finished first."""

    def __init__(self, registration: Registration, max_jobs: int | None, max_memory: int | None) -> None:
        self._registration = registration
        self._max_jobs = max_jobs
        self._max_memory = max_memory

    async def run(self, stop: Callable[[], None]) -> None:
        """Call `stop` once a limit is reached."""
        reason = self.reason()
        while reason is None:
            await asyncio.sleep(CHECK)
            reason = self.reason()
        _LOGGER.info("the worker process ends: %s", reason)
        stop()

    def reason(self) -> str | None:
        """Why the process ends; None while it has not done its share."""
        ended = self._registration.ended
        if self._max_jobs is not None and ended >= self._max_jobs:
            return f"it has executed {ended} jobs, and max_jobs is {self._max_jobs}"
        memory = resident_memory() if self._max_memory is not None else None
        if memory is not None and self._max_memory is not None and memory >= self._max_memory:
            return f"it holds {memory} bytes of memory, and max_memory is {self._max_memory}"
        return None


def recycling_of(registration: Registration, max_jobs: object, max_memory: object) -> Recycling | None:
    """The recycling that the options ask for; None for none."""
    if max_jobs is None and max_memory is None:
        return None
    for name, found, most in (("max_jobs", max_jobs, MAX_JOBS), ("max_memory", max_memory, 2**53)):
        if found is not None and not (type(found) is int and 1 <= found <= most):
            raise OptionError(name, found, f"a whole number from 1 to {most}")
    return Recycling(
        registration,
        max_jobs if isinstance(max_jobs, int) else None,
        max_memory if isinstance(max_memory, int) else None,
    )
