"""What the demo's jobs are fated to do: drawn from a seed, carried in their payloads."""

import random
from collections.abc import Iterator
from enum import StrEnum
from typing import Final

import msgspec

QUEUE: Final = "demo"
MAX_ATTEMPTS: Final = 3
LEASE_SECONDS: Final = 2.0
SLOTS: Final = 8


class Fate(StrEnum):
    """How a job ends, if nobody kills its worker too often."""

    FINE = "fine"
    """Completes at the first attempt."""
    FLAKY = "flaky"
    """Fails once, then completes."""
    DOOMED = "doomed"
    """Fails every time: ends dead."""
    REFUSED = "refused"
    """Says that trying again makes no sense: ends failed."""


class Planned(msgspec.Struct, frozen=True):
    """One job of the demo."""

    number: int
    fate: Fate
    work_ms: int
    delay_ms: int = 0


def plan(jobs: int, seed: int) -> Iterator[Planned]:
    """The jobs for a seed, the same each time."""
    chance = random.Random(seed)
    for number in range(jobs):
        fate = chance.choices(tuple(Fate), (88, 8, 2, 2))[0]
        delay_ms = chance.randint(200, 3_000) if chance.random() < 0.05 else 0
        yield Planned(number, fate, chance.randint(5, 40), delay_ms)
