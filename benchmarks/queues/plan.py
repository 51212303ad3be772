"""How much is measured: enough to mean something, or just enough to see that it runs."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Plan:
    """Queues, jobs that are sent to some of them, seconds in which the worker idles, and schedules."""

    rounds: int
    queues: int
    jobs: int
    idle: float
    schedules: int


FULL: Final = Plan(rounds=1, queues=10_000, jobs=300, idle=30.0, schedules=20_000)
QUICK: Final = Plan(rounds=1, queues=500, jobs=20, idle=3.0, schedules=200)
