"""How much is measured: enough to mean something, or just enough to see that it runs."""

from dataclasses import dataclass
from typing import Final

PEER: Final = "Huey"
OURS_MODULE: Final = "benchmarks.sqlite.ours"
PEER_MODULE: Final = "benchmarks.sqlite.peer"
DURABILITIES: Final = ("server", "power")
CONCURRENCY: Final = 100
CALLERS: Final = 50


@dataclass(frozen=True, slots=True)
class Amounts:
    """Jobs per measured run of one side, at one durability."""

    processing: int
    single: int
    bulk: int


@dataclass(frozen=True, slots=True)
class Plan:
    """`amounts` by side and durability: rates are per second, so that the slow need not wait for long."""

    rounds: int
    amounts: dict[tuple[str, str], Amounts]
    samples: int
    pause: float
    depths: tuple[int, int]
    claims: int
    keys: tuple[int, int]
    delayed: tuple[int, ...]
    idle_seconds: float
    imports: int


FULL: Final = Plan(
    rounds=3,
    amounts={
        ("Penstock", "server"): Amounts(30_000, 30_000, 100_000),
        ("Huey", "server"): Amounts(15_000, 15_000, 15_000),
        ("Penstock", "power"): Amounts(10_000, 10_000, 100_000),
        ("Huey", "power"): Amounts(1_000, 1_000, 1_000),
    },
    samples=70,
    pause=0.2,
    depths=(1_000, 1_000_000),
    claims=100,
    keys=(100, 100_000),
    delayed=(1_000, 100_000, 1_000_000),
    idle_seconds=5.0,
    imports=15,
)

QUICK: Final = Plan(
    rounds=1,
    amounts={
        ("Penstock", "server"): Amounts(2_000, 2_000, 5_000),
        ("Huey", "server"): Amounts(1_000, 1_000, 1_000),
        ("Penstock", "power"): Amounts(1_000, 1_000, 5_000),
        ("Huey", "power"): Amounts(100, 100, 100),
    },
    samples=10,
    pause=0.1,
    depths=(1_000, 20_000),
    claims=10,
    keys=(100, 5_000),
    delayed=(1_000, 20_000),
    idle_seconds=1.0,
    imports=3,
)
