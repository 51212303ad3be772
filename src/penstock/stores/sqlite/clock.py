"""The time in the file: the host's clock and the offset of the test kit, never going back within a queue."""

import sqlite3
import time
from typing import Final

from penstock.core.job import QueueRef

HELD_BACK_US: Final = 60_000_000
"""A clock that went back by less than this is waited out; by more, it was set on purpose and is followed."""


def offset_ms(connection: sqlite3.Connection) -> int:
    """How far the test kit turned the clock."""
    return int(connection.execute("SELECT value FROM meta WHERE name = 'clock_offset_ms'").fetchone()[0])


def host_us(connection: sqlite3.Connection) -> int:
    """The host's clock with the offset in the file, in microseconds."""
    return time.time_ns() // 1000 + offset_ms(connection) * 1000


def not_before(last_us: int, host: int) -> int:
    """The time to use, given the newest one used."""
    return last_us if 0 < last_us - host < HELD_BACK_US else host


def read_now(connection: sqlite3.Connection, queue: QueueRef) -> int:
    """The time that a turn on this queue would have, in milliseconds."""
    row = connection.execute(
        "SELECT at_us FROM queue WHERE tenant = ? AND name = ?", (queue.tenant, queue.name)
    ).fetchone()
    return not_before(0 if row is None else row[0], host_us(connection)) // 1000
