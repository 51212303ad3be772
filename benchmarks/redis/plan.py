"""How much is measured on the server: enough to mean something, or just enough to see that it runs."""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.beside.side import Side
from benchmarks.redis import server as servers
from benchmarks.redis.sides import EXTRAS, PENSTOCK, PYTHON_PEERS


@dataclass(frozen=True, slots=True)
class Plan:
    """`share` is how much of its amounts a side gets."""

    rounds: int
    share: float
    samples: int
    pause: float
    depths: tuple[int, int]
    claims: int
    memory_jobs: int
    server: str = "valkey"
    sides: tuple[Side, ...] = (PENSTOCK, *PYTHON_PEERS)
    extras: tuple[Side, ...] = EXTRAS

    def processing(self, side: Side) -> int:
        """Jobs to work off."""
        return max(200, int(side.processing * self.share))

    def enqueues(self, side: Side) -> int:
        """Jobs to enqueue."""
        return max(1_000, int(side.enqueues * self.share))

    def serve(self, folder: Path) -> AbstractContextManager[servers.Server]:
        """A fresh server with its data in the folder."""
        return servers.running(self.server, folder)


FULL: Final = Plan(
    rounds=3,
    share=1.0,
    samples=200,
    pause=0.1,
    depths=(1_000, 1_000_000),
    claims=1_000,
    memory_jobs=100_000,
)
QUICK: Final = Plan(
    rounds=1,
    share=0.2,
    samples=30,
    pause=0.1,
    depths=(1_000, 50_000),
    claims=20,
    memory_jobs=10_000,
)
