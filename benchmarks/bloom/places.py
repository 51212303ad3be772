"""A fresh store, with what its server has done so far."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.postgres import server as postgres
from benchmarks.redis import server as redis

TITLES: Final = {"sqlite": "SQLite", "postgres": "PostgreSQL", "valkey": "Valkey"}
Count = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Place:
    """A store's url, the processor time of its server in seconds, and what it received: calls and bytes."""

    url: str
    spent: Count
    calls: Count
    received: Count


def _nothing() -> float:
    return 0.0


@contextmanager
def running(store: str, folder: Path) -> Iterator[Place]:
    """A store with nothing in it; gone at the end of the block."""
    if store == "sqlite":
        yield Place(f"sqlite:///{folder / 'jobs.db'}", _nothing, _nothing, _nothing)
    elif store == "valkey":
        with redis.running("valkey", folder) as server:

            def told(field: str) -> float:
                return float(server.client.info("stats")[field])

            yield Place(
                server.url,
                server.spent,
                lambda: told("total_commands_processed"),
                lambda: told("total_net_input_bytes"),
            )
    else:
        with postgres.running() as database:
            yield Place(database.url, database.spent, _nothing, _nothing)
