"""The server that all sides are measured on: a fresh one for every measurement, with the same settings."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import psycopg

from benchmarks.machine import spent
from tests.kit import postgres

SETTINGS: Final = {
    "fsync": "on",
    "synchronous_commit": "on",
    "autovacuum": "on",
    "shared_buffers": "512MB",
    "max_wal_size": "4GB",
}
"""What is not a default; the first three are, and are not those of the tests' servers."""


class Server:
    """A server that answers, with its process."""

    def __init__(self, found: postgres.Server) -> None:
        self.url = found.url
        self.pid = found.pid

    def spent(self) -> float:
        """Seconds of processor time of all its processes, those that ended too."""
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        return spent([self.pid, *map(int, children)], with_ended=True)

    def listeners(self) -> int:
        """How many workers listen for wake-ups."""
        with psycopg.connect(self.url) as connection:
            found = connection.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'penstock-listen'"
            ).fetchone()
        return int(found[0]) if found else 0


def binaries() -> Path:
    """The programs of the newest server that comes as a wheel."""
    found = postgres.wheel_binaries()
    if found is None:
        raise SystemExit("the wheel with the PostgreSQL server is not installed")
    return found


def version() -> str:
    """In the words of the report."""
    return f"PostgreSQL {postgres.version(binaries())}"


@contextmanager
def running() -> Iterator[Server]:
    """A server on a loopback port; it and its data are gone at the end of the block."""
    with postgres.running(binaries(), SETTINGS) as found:
        yield Server(found)
