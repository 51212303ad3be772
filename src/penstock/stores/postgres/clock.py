"""The clock of the server, with the offset in the database, and what follows where it was set back."""

from typing import Final

from penstock.core.clocks import STEP_MS
from penstock.stores.bounds import MAX_LEASE_MS
from penstock.stores.postgres.backend import Backend

FAR_LEASE: Final = (
    f"job.deadline > clock.now + {STEP_MS} "
    f"AND job.deadline > clock.now + coalesce(job.lease_ms, {MAX_LEASE_MS}) + {STEP_MS}"
)
"""Holds for a lease that has ended because the clock was set back."""

_ADVANCE: Final = "UPDATE penstock.meta SET value = value + $1::bigint WHERE name = 'clock_offset_ms'"


class PostgresClock:
    """The part `Clock`."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def now(self) -> int:
        """Unix milliseconds by the server's clock and the offset in the database."""
        return await self._backend.now_us() // 1000

    async def advance_clock(self, by_ms: int) -> None:
        """Advance the clock; the offset is kept in the database."""
        await self._backend.query(_ADVANCE, by_ms)
        self._backend.forget_hints()
        self._backend.notifier.notify_clock_change()
