"""The time in the file: the host's clock and the offset of the test kit, never going back within a queue."""

import sqlite3
import time
from typing import Final

from penstock.core.clocks import STEP_MS, time_after
from penstock.core.job import QueueRef
from penstock.stores.bounds import MAX_LEASE_MS
from penstock.stores.sqlite.backend import Backend
from penstock.stores.sqlite.codec import check_numbers

FAR_LEASE: Final = (
    "deadline > :now + :step_ms AND deadline > :now + coalesce(lease_ms, :lease_limit) + :step_ms"
)
"""Holds for a lease that has ended because the clock was set back."""
STEPPED: Final = "max(at_us / 1000, coalesce(step_at + step_back_ms, 0)) > :now + :step_ms"
"""Holds for a queue while its clock has not reached again the newest time that it used."""
LEASE_PARAMS: Final = {"step_ms": STEP_MS, "lease_limit": MAX_LEASE_MS}


class SqliteClock:
    """Tells the time with the test kit's offset, which is kept in the file."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def now(self) -> int:
        """Unix milliseconds by the host's clock and the offset in the file."""
        return await self._backend.read(lambda connection: host_us(connection) // 1000)

    async def advance_clock(self, by_ms: int) -> None:
        """Turn the clock; the offset is stored in the file."""

        def work(connection: sqlite3.Connection) -> None:
            connection.execute("UPDATE meta SET value = value + ? WHERE name = 'clock_offset_ms'", (by_ms,))

        await self._backend.write(work)
        self._backend.notifier.notify_all()


def offset_ms(connection: sqlite3.Connection) -> int:
    """How far the test kit turned the clock."""
    return int(connection.execute("SELECT value FROM meta WHERE name = 'clock_offset_ms'").fetchone()[0])


def host_us(connection: sqlite3.Connection) -> int:
    """The host's clock with the offset in the file, in microseconds."""
    return time.time_ns() // 1000 + offset_ms(connection) * 1000


def read_now(connection: sqlite3.Connection, queue: QueueRef) -> int:
    """The time that a transaction on this queue would have, in milliseconds."""
    row = connection.execute(
        "SELECT at_us FROM queue WHERE tenant = ? AND name = ?", (queue.tenant, queue.name)
    ).fetchone()
    check_numbers(queue, row or ())
    return time_after(0 if row is None else row[0], host_us(connection)) // 1000
