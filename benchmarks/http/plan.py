"""How much is measured."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Plan:
    """`jobs` are created in batches and worked off; `seconds` is how long single requests are sent."""

    rounds: int
    jobs: int
    seconds: float


FULL: Final = Plan(rounds=3, jobs=20_000, seconds=5.0)
QUICK: Final = Plan(rounds=1, jobs=1_000, seconds=1.0)
