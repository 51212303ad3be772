"""The event log of the memory store."""

from bisect import bisect_left
from typing import Final

import msgspec

from penstock.core.cursors import Cursor, check_cursor, placed, read_cursor
from penstock.core.events import Event
from penstock.core.job import QueueRef
from penstock.stores.absent import answers_absent
from penstock.stores.bounds import DAMAGED_EVENT_LIMIT
from penstock.stores.columns import columns
from penstock.stores.memory.backend import Backend
from penstock.stores.memory.ledger import Ledger
from penstock.stores.values import DamagedEvent, EventColumns, QueueInfo

_FIELDS: Final = Event.__struct_fields__
_ELSEWHERE: Final = frozenset({"tenant", "queue", "cursor"})


class MemoryEvents:
    """Events that were written, in the order of their numbers."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def read_events(self, queue: QueueRef, after: str | int = 0, limit: int = 1_000) -> list[Event]:
        cursor = read_cursor("after", after)
        with self._backend.lock:
            ledger = self._backend.ledgers.get(queue) or Ledger(QueueInfo(queue, 0))
            find_event(ledger, cursor)
            start = cursor.seq - _first(ledger) + 1
            return [placed(event) for event in ledger.log[start : start + limit]]

    async def event_columns(
        self, queue: QueueRef, after: str | int, through: str, limit: int
    ) -> EventColumns:
        last = read_cursor("through", through).seq
        cursor = read_cursor("after", after)
        with self._backend.lock:
            ledger = self._backend.ledgers.get(queue) or Ledger(QueueInfo(queue, 0))
            find_event(ledger, cursor)
            before = _first(ledger) - 1
            start, end = cursor.seq - before, min(last - before, cursor.seq - before + max(limit, 0))
            events = ledger.log[start : max(start, end)]
        found = columns(_FIELDS, [*map(msgspec.structs.astuple, events)])
        return EventColumns(len(events), {name: found[name] for name in found if name not in _ELSEWHERE})

    async def cursor_after(self, queue: QueueRef, after: str | int = 0, limit: int | None = None) -> str:
        cursor = read_cursor("after", after)
        with self._backend.lock:
            ledger = self._backend.ledgers.get(queue) or Ledger(QueueInfo(queue, 0))
            there = find_event(ledger, cursor)
            following = ledger.log[cursor.seq - _first(ledger) + 1 :][:limit]
            last = following[-1] if following else there
            return str(cursor) if last is None else placed(last).cursor

    async def cursor_at(self, queue: QueueRef, at: int) -> str:
        with self._backend.lock:
            ledger = self._backend.ledgers.get(queue) or Ledger(QueueInfo(queue, 0))
            index = bisect_left(ledger.log, at, key=lambda event: event.at)
            return placed(ledger.log[index - 1]).cursor if index else str(_first(ledger) - 1)

    async def event_range(self, queue: QueueRef) -> tuple[int, int]:
        with self._backend.lock:
            ledger = self._backend.ledgers.get(queue)
            return (1, 0) if ledger is None else (_first(ledger), ledger.seq)

    @answers_absent
    async def trim(self, queue: QueueRef, *, through: int) -> int:
        with self._backend.lock:
            ledger = self._backend.existing(queue)
            cut = sum(event.seq <= through for event in ledger.log)
            del ledger.log[:cut]
            return cut

    async def damaged_events(
        self, queue: QueueRef, after: int = 0, limit: int = DAMAGED_EVENT_LIMIT
    ) -> list[DamagedEvent]:
        """None: nobody can damage them from outside."""
        return []


def _first(ledger: Ledger) -> int:
    return ledger.seq - len(ledger.log) + 1


def find_event(ledger: Ledger, cursor: Cursor) -> Event | None:
    """The event with the cursor's number, if it is kept; CursorLostError as for `events`."""
    first = _first(ledger)
    there = ledger.log[cursor.seq - first] if first <= cursor.seq <= ledger.seq else None
    check_cursor(ledger.info.queue, cursor, first, ledger.seq, there)
    return there
