"""How much is measured: enough to mean something, or just enough to see that it runs."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final


@dataclass(frozen=True, slots=True)
class Plan:
    """`piped` are events that become tables, `backlogs` events that wait to be read; `looks` is how often the
    head of a log is looked for. `audited_since` are events that come after `histories`, before the audit that
    is measured.
    """

    rounds: int
    enqueues: int
    jobs: int
    events: int
    audited: int
    audited_since: int
    histories: tuple[int, ...]
    piped: int
    backlogs: tuple[int, int]
    looks: int
    jdbc: Path | None = None


FULL: Final = Plan(
    rounds=3,
    enqueues=400_000,
    jobs=1_000_000,
    events=800_000,
    audited=1_000_000,
    audited_since=200_000,
    histories=(1_000_000, 10_000_000),
    piped=900_000,
    backlogs=(1_000, 300_000),
    looks=100,
)
QUICK: Final = Plan(
    rounds=1,
    enqueues=20_000,
    jobs=20_000,
    events=20_000,
    audited=200_000,
    audited_since=100_000,
    histories=(100_000, 400_000),
    piped=30_000,
    backlogs=(1_000, 20_000),
    looks=20,
)
