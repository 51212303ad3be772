"""The plan of the demo: how each job behaves, drawn from a seed and carried in its payload."""

import random
from collections.abc import Iterator
from enum import StrEnum
from typing import Final

import msgspec

QUEUE: Final = "demo"
MAX_ATTEMPTS: Final = 3
LEASE_SECONDS: Final = 2.0
SLOTS: Final = 8


class Behavior(StrEnum):
    """How the attempts of a job end, unless its worker is killed too often."""

    COMPLETES = "completes"
    """The first attempt completes."""
    FAILS_ONCE = "fails once"
    """The first attempt fails, the second completes."""
    FAILS_ALWAYS = "fails always"
    """Every attempt fails: the job ends dead."""
    FAILS_FOR_GOOD = "fails for good"
    """The first attempt asks for no retry: the job ends failed."""


class PlannedJob(msgspec.Struct, frozen=True):
    """One job of the demo."""

    number: int
    behavior: Behavior
    work_ms: int
    delay_ms: int = 0


def plan(jobs: int, seed: int) -> Iterator[PlannedJob]:
    """The jobs for a seed, the same each time."""
    chance = random.Random(seed)
    for number in range(jobs):
        behavior = chance.choices(tuple(Behavior), (88, 8, 2, 2))[0]
        delay_ms = chance.randint(200, 3_000) if chance.random() < 0.05 else 0
        yield PlannedJob(number, behavior, chance.randint(5, 40), delay_ms)
