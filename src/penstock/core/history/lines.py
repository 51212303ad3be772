"""The lines that jobs of one queue wait in, and whether each claim took the one whose turn it was."""

from collections import deque
from itertools import islice
from typing import Final

import msgspec

from penstock.core.events import Event
from penstock.core.history.life import Life, Tell
from penstock.core.history.rules import Rule
from penstock.core.history.scratch import NewTable, ScratchTable, SpillingMap
from penstock.core.job import DEFAULT_PRIORITY
from penstock.core.moves import Move
from penstock.core.states import State

CHUNK: Final = 1_024
"""Entries of a line that go to the scratch table together."""

Entry = tuple[int, str]
"""The place of a job, which is unique in its line, and the job's id."""
_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(list[Entry]).decode


class Line:
    """The jobs of one tier by arrival, its two ends in memory and what is between them in a scratch table.

    An entry of a job that left is skipped when it comes to the front: a job stands at its life's place only.
    """

    def __init__(self, tier: int, lives: SpillingMap[Life], new_table: NewTable | None) -> None:
        self.tier = tier
        self.many = 0
        """Jobs that stand in it."""
        self._lives = lives
        self._table = None if new_table is None else new_table()
        self._head: deque[Entry] = deque()
        self._tail: deque[Entry] = deque()
        self._lowest = self._highest = 0
        self._chunks = range(0)
        """The numbers of the chunks in the table."""

    def join(self, job: str, life: Life, *, at_front: bool) -> None:
        """Put the job at the end of the line, or before all others."""
        if at_front:
            self._lowest -= 1
            life.place = self._lowest
            self._head.appendleft((life.place, job))
            if len(self._head) > 2 * CHUNK and self._table is not None:
                self._spill_head(self._table)
        else:
            self._highest += 1
            life.place = self._highest
            self._tail.append((life.place, job))
            if len(self._tail) >= CHUNK and self._table is not None:
                _put(self._table, self._chunks.stop, self._tail)
                self._chunks = range(self._chunks.start, self._chunks.stop + 1)
                self._tail = deque()
        life.tier = self.tier
        self.many += 1

    def leave(self, life: Life) -> None:
        """Take the job of this life out."""
        life.tier = None
        self.many -= 1
        if not self.many:
            self._head, self._tail, self._chunks = deque(), deque(), range(0)
        elif self._head and self._head[0][0] == life.place:
            self._head.popleft()

    def first(self) -> tuple[str, Life]:
        """The job whose turn it is, of a line with jobs in it."""
        while True:
            if not self._head:
                self._load_head()
            place, job = self._head[0]
            life = self._lives.get(job)
            if life is not None and life.tier == self.tier and life.place == place:
                return job, life
            self._head.popleft()

    def _load_head(self) -> None:
        if not self._chunks:
            self._head, self._tail = self._tail, self._head
            return
        number = self._chunks.start
        self._chunks = self._chunks[1:]
        packed = None if self._table is None else self._table.get(str(number))
        if packed is None:
            raise LookupError(f"the scratch table lost chunk {number} of the line of tier {self.tier}")
        self._head = deque(_decode(packed))

    def _spill_head(self, table: ScratchTable) -> None:
        number = self._chunks.start - 1
        _put(table, number, deque(islice(self._head, CHUNK, None)))
        self._head = deque(islice(self._head, CHUNK))
        self._chunks = range(number, self._chunks.stop)


def _put(table: ScratchTable, chunk: int, entries: deque[Entry]) -> None:
    table.put([(str(chunk), _encode(list(entries)))])


class Lines:
    """One line per tier, by arrival. Jobs that are served by key stand in none."""

    def __init__(self, lives: SpillingMap[Life], new_table: NewTable | None = None) -> None:
        self._lives = lives
        self._new_table = new_table
        self._tiers: dict[int, Line] = {}
        self._descending: list[Line] = []

    def follow(self, job: str, life: Life, event: Event, tell: Tell, *, any_key: bool = False) -> None:
        """Move the job to where the event puts it; jobs with a key too where that is no matter of turns."""
        if life.tier is not None:
            if event.move is Move.CLAIM:
                self._check_turn(job, life, event, tell)
            self.leave(life)
        # A replaced job keeps or loses its place as the store likes: its turn cannot be told.
        if (
            event.target is State.PENDING
            and event.move is not Move.REPLACE
            and (any_key or event.key is None)
        ):
            self._join(job, life, event)

    def leave(self, life: Life) -> None:
        """Take the job of this life out of its line, if it stands in one."""
        if life.tier is not None:
            self._tiers[life.tier].leave(life)

    def _join(self, job: str, life: Life, event: Event) -> None:
        tier = DEFAULT_PRIORITY if event.priority is None else event.priority
        line = self._tiers.get(tier)
        if line is None:
            line = self._tiers[tier] = Line(tier, self._lives, self._new_table)
            self._descending = [self._tiers[each] for each in sorted(self._tiers, reverse=True)]
        line.join(job, life, at_front=event.move is Move.RELEASE or event.move is Move.EXPIRE)

    def _check_turn(self, job: str, life: Life, event: Event, tell: Tell) -> None:
        line = next(each for each in self._descending if each.many)
        first, overtaken = line.first()
        if first == job:
            return
        if overtaken.tier == life.tier:
            tell(Rule.FIFO, event, f"claimed before {first}, which came first")
        else:
            tell(Rule.TIER, event, f"claimed in tier {life.tier} before {first} in tier {overtaken.tier}")
        # A job that was passed over is reported once, not again with every later claim.
        self.leave(overtaken)
