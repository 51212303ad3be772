"""How much is measured: enough to mean something, or just enough to see that it runs."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Plan:
    """Jobs that are enqueued, claimed and completed; fewer where each has calls of its own."""

    rounds: int
    jobs: int
    single_jobs: int
    stores: tuple[str, ...]


FULL: Final = Plan(
    rounds=3, jobs=100_000, single_jobs=10_000, stores=("memory", "sqlite", "postgres", "valkey", "redis")
)
QUICK: Final = Plan(rounds=1, jobs=20_000, single_jobs=2_000, stores=FULL.stores)
