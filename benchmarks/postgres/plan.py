"""How much is measured on the server: enough to mean something, or just enough to see that it runs."""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.beside.side import Side
from benchmarks.postgres import server
from benchmarks.postgres.sides import EXTRAS, PEERS, PENSTOCK


@dataclass(frozen=True, slots=True)
class Plan:
    """`share` is how much of its amounts a side gets; `flow` is how many jobs pass beside an old snapshot."""

    rounds: int
    share: float
    samples: int
    pause: float
    depths: tuple[int, int]
    claims: int
    flow: int
    sides: tuple[Side, ...] = (PENSTOCK, *PEERS)
    extras: tuple[Side, ...] = EXTRAS

    def processing(self, side: Side) -> int:
        """Jobs to work off."""
        return max(500, int(side.processing * self.share))

    def enqueues(self, side: Side) -> int:
        """Jobs to enqueue."""
        return max(1_000, int(side.enqueues * self.share))

    def serve(self, folder: Path) -> AbstractContextManager[server.Server]:
        """A fresh server; PostgreSQL wants a folder of its own."""
        return server.running()


FULL: Final = Plan(
    rounds=3, share=1.0, samples=200, pause=0.1, depths=(1_000, 1_000_000), claims=100, flow=60_000
)
QUICK: Final = Plan(
    rounds=1, share=0.4, samples=30, pause=0.1, depths=(1_000, 50_000), claims=30, flow=10_000
)
