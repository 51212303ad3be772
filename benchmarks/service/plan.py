"""How much is measured through the service: enough to mean something, or just enough to see that it runs."""

from dataclasses import dataclass
from typing import Final

BATCH: Final = 100
"""Jobs in one request."""
CONNECTIONS: Final = 50


@dataclass(frozen=True, slots=True)
class Plan:
    """`singles` are requests with one job each."""

    rounds: int
    jobs: int
    singles: int
    stores: tuple[str, ...] = ("sqlite", "postgres")


FULL: Final = Plan(rounds=3, jobs=20_000, singles=10_000)
QUICK: Final = Plan(rounds=1, jobs=4_000, singles=2_000)
