"""The parts of the suite: what a store may leave out, and the mark of a test that needs it."""

from enum import StrEnum
from typing import Final

import pytest

from penstock.core.moves import Move


class Part(StrEnum):
    """A part of what a store promises. The first five every store has; a test names the others that it needs.

    Most are the parts of the protocol, by the name they have on a `Store`.
    """

    MOVES = "moves"
    READS = "reads"
    QUEUES = "queues"
    EVENTS = "events"
    CLOCK = "clock"
    HEALTH = "health"
    UPKEEP = "upkeep"
    NOTIFIER = "notifier"
    READERS = "readers"
    WORKERS = "workers"
    KEY_VALUE = "key_value"
    ROLLUPS = "rollups"
    SCHEDULES = "schedules"
    FLOWS = "flows"
    QUARANTINE = "quarantine"
    EVENT_RANGES = "event_ranges"
    """`event_columns`, `cursor_after` and `cursor_at`: ranges of the log, which the Spark source reads."""
    HANDLES = "handles"
    """`clone()`: several handles on one store, each in an event loop of its own."""
    KEYS = "keys"
    """Queues whose keys take turns, with rules of single keys."""
    LIMITS = "limits"
    """What a declaration bounds: running jobs, the rate of starts, the length of the queue; and pauses."""
    UNIQUE = "unique"
    """Jobs that are one of a kind, and the move `replace`."""
    DELETION = "deletion"
    """`delete_queue`, and cursors that tell the events of a deleted queue from those of the next one."""


REQUIRED: Final = frozenset({Part.MOVES, Part.READS, Part.QUEUES, Part.EVENTS, Part.CLOCK})
"""The parts that every store has: no test names them."""
PARTS: Final = frozenset(Part)
MOVES_OF_PARTS: Final = {Move.UNBLOCK: Part.FLOWS, Move.REPLACE: Part.UNIQUE}


def needs(*parts: Part) -> pytest.MarkDecorator:
    """Mark a test that needs these parts of a store beside the required ones."""
    return pytest.mark.needs(*parts)


def moves_with(parts: frozenset[Part]) -> frozenset[Move]:
    """The moves of a store that has these parts."""
    return frozenset(move for move in Move if move not in MOVES_OF_PARTS or MOVES_OF_PARTS[move] in parts)
