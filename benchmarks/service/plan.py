"""How much is measured through the service: enough to mean something, or just enough to see that it runs."""

from dataclasses import dataclass
from typing import Final

BATCH: Final = 100
"""Jobs in one request."""
CONNECTIONS: Final = 50
QUEUES: Final = 2_000
"""Queues of the hostile tenant."""
IDLE: Final = 1_000
"""Connections that it holds open without a request, as many as the service has."""
ATTACKS: Final = 20
"""Requests per second that it makes."""


@dataclass(frozen=True, slots=True)
class Plan:
    """`singles` are requests with one job each; beside a hostile tenant another is timed for `seconds`."""

    rounds: int
    jobs: int
    singles: int
    seconds: float
    stores: tuple[str, ...] = ("sqlite", "postgres")
    hostile_stores: tuple[str, ...] = ("sqlite", "valkey")


FULL: Final = Plan(rounds=3, jobs=20_000, singles=10_000, seconds=10)
QUICK: Final = Plan(rounds=1, jobs=4_000, singles=2_000, seconds=5)
