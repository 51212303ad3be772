"""What one task reads: made where the query is planned, and handed to the executors."""

from dataclasses import dataclass
from typing import Final

from pyspark.sql.datasource import InputPartition

from penstock.core.job import QueueRef
from penstock.core.states import State
from penstock.stores.sqlite.scan import RowRange

MOST_PIECES: Final = 1_000


@dataclass(frozen=True)
class SqlitePiece(InputPartition):
    """A range of rows, of these queues."""

    queues: dict[int, QueueRef]
    rows: RowRange


@dataclass(frozen=True)
class RedisPiece(InputPartition):
    """Jobs of a queue that were enqueued, or that ended in a state, from `first` to `last`."""

    queue: QueueRef
    ended: State | None
    first: int
    last: int


def pieces_for(size: int, each: int, least: int | None) -> int:
    """How many pieces, for so much in all and so much in each; at least as many as are asked for."""
    return min(max(-(-size // each), least or 1, 1), MOST_PIECES)


def evenly(count: int, pieces: int) -> list[int]:
    """Where to cut so many things into about equal pieces; fewer cuts where there is too little to cut."""
    return sorted({count * at // pieces for at in range(1, pieces)} - {0})
