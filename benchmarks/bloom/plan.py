"""How much is measured with filters on and off."""

from dataclasses import dataclass
from typing import Final

BATCH: Final = 500
"""Jobs in one call."""
DUPLICATES: Final = (0.0, 0.5, 0.99)
PAYLOADS: Final = (100, 10_000)
PURGERS: Final = 3


@dataclass(frozen=True, slots=True)
class Plan:
    """`bytes` of payloads are enqueued in one measurement; `ghosts` are deleted ids in a list."""

    rounds: int
    jobs: int
    bytes: int
    ghosts: int
    purged: int
    stores: tuple[str, ...] = ("sqlite", "postgres", "valkey")


FULL: Final = Plan(rounds=3, jobs=20_000, bytes=100_000_000, ghosts=1_000_000, purged=30_000)
QUICK: Final = Plan(rounds=1, jobs=2_000, bytes=5_000_000, ghosts=20_000, purged=3_000)
