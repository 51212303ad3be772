"""The store's time as a process projects it, for the floor of the fences that it claims."""

import logging
import time
from collections.abc import Callable
from typing import Final

from penstock.core.clocks import is_floor_ignored

_LOGGER: Final = logging.getLogger("penstock.store")

if hasattr(time, "CLOCK_BOOTTIME"):

    def _boot_us() -> int:
        """Microseconds that go on while the machine is suspended, and never step."""
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000

else:

    def _boot_us() -> int:
        return time.monotonic_ns() // 1000


class ProjectedTime:
    """The newest time that the store told this process, and what the boot clock counted since.

    A store whose clock is behind that, after a failover or because it was set, does not take it back: fences
    go on from there. Only a store that is behind by so much that it ignores the floor does.
    """

    def __init__(self, boot_us: Callable[[], int] = _boot_us) -> None:
        self._boot_us = boot_us
        self._observed_us = 0
        self._observed_at = 0

    def floor_us(self, given_us: int = 0) -> int:
        """The floor to send with a claim: this process's, or what another one gave if that is higher.

        A given floor that this process's time makes incredible is left out: its own still counts.
        """
        own = self._projected()
        if own and is_floor_ignored(own, given_us):
            above = (given_us - own) // 1_000_000
            _LOGGER.warning("fence floor of a claim ignored: it is %d s above the store's time", above)
            return own
        return max(own, given_us)

    def observe(self, now_us: int, sent_us: int = 0) -> None:
        """The store answered a claim, which carried this floor, with its time."""
        if is_floor_ignored(now_us, sent_us):
            behind = (sent_us - now_us) // 1_000_000
            _LOGGER.warning("fence floor ignored by the store: its clock is %d s behind the floor", behind)
        elif self._projected() > now_us:
            return
        self._observed_us, self._observed_at = now_us, self._boot_us()

    def _projected(self) -> int:
        return self._observed_us + self._boot_us() - self._observed_at if self._observed_us else 0
