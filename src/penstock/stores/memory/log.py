"""The event log of the memory store, and its readers."""

from bisect import bisect_left

import msgspec

from penstock.core.cursors import Cursor, check_cursor, placed, read_cursor
from penstock.core.events import Event
from penstock.core.job import QueueRef
from penstock.core.names import check_name
from penstock.stores.absent import answers_absent
from penstock.stores.bounds import READER_LEASE_MS
from penstock.stores.memory.ledger import Ledger
from penstock.stores.memory.room import Room
from penstock.stores.values import EventColumns, QueueInfo, Reader


class MemoryLog(Room):
    """Events that were written, and who has read how far."""

    async def events(self, queue: QueueRef, after: str | int = 0, limit: int = 1_000) -> list[Event]:
        cursor = read_cursor("after", after)
        with self._lock:
            ledger = self._ledgers.get(queue) or Ledger(QueueInfo(queue, 0))
            _find(ledger, cursor)
            start = cursor.seq - _first(ledger) + 1
            return [placed(event) for event in ledger.log[start : start + limit]]

    async def event_columns(
        self, queue: QueueRef, after: str | int, through: str, limit: int
    ) -> EventColumns:
        last = read_cursor("through", through).seq
        events = [event for event in await self.events(queue, after, limit) if event.seq <= last]
        fields = {
            each.name: [getattr(event, each.name) for event in events]
            for each in msgspec.structs.fields(Event)
            if each.name not in {"tenant", "queue", "cursor"}
        }
        return EventColumns(len(events), fields)

    async def cursor_after(self, queue: QueueRef, after: str | int = 0, limit: int | None = None) -> str:
        cursor = read_cursor("after", after)
        with self._lock:
            ledger = self._ledgers.get(queue) or Ledger(QueueInfo(queue, 0))
            there = _find(ledger, cursor)
            following = ledger.log[cursor.seq - _first(ledger) + 1 :][:limit]
            last = following[-1] if following else there
            return str(cursor) if last is None else placed(last).cursor

    async def cursor_at(self, queue: QueueRef, at: int) -> str:
        with self._lock:
            ledger = self._ledgers.get(queue) or Ledger(QueueInfo(queue, 0))
            index = bisect_left(ledger.log, at, key=lambda event: event.at)
            return placed(ledger.log[index - 1]).cursor if index else str(_first(ledger) - 1)

    async def event_range(self, queue: QueueRef) -> tuple[int, int]:
        with self._lock:
            ledger = self._ledgers.get(queue)
            return (1, 0) if ledger is None else (_first(ledger), ledger.seq)

    @answers_absent
    async def trim(self, queue: QueueRef, *, through: int) -> int:
        with self._lock:
            ledger = self._existing(queue)
            cut = sum(event.seq <= through for event in ledger.log)
            del ledger.log[:cut]
            return cut

    async def keep_reader(self, queue: QueueRef, name: str, cursor: str | int) -> Reader:
        check_name("reader", name)
        place = read_cursor("cursor", cursor)
        with self._lock:
            ledger = self._ledger(queue)
            there = _find(ledger, place)
            if there is not None:
                place = Cursor(place.seq, there.mark)
            reader = Reader(name, str(place), place.seq, self._now() + READER_LEASE_MS)
            ledger.readers[name] = reader
            return reader

    async def readers(self, queue: QueueRef) -> list[Reader]:
        with self._lock:
            ledger = self._ledgers.get(queue)
            kept = {} if ledger is None else ledger.readers
            return [kept[name] for name in sorted(kept)]

    @answers_absent
    async def drop_reader(self, queue: QueueRef, name: str) -> bool:
        with self._lock:
            return self._existing(queue).readers.pop(name, None) is not None

    @answers_absent
    async def forget_readers(self, queue: QueueRef) -> int:
        with self._lock:
            kept, now = self._existing(queue).readers, self._now()
            over = [name for name, reader in kept.items() if reader.kept_until <= now]
            for name in over:
                del kept[name]
            return len(over)


def _first(ledger: Ledger) -> int:
    return ledger.seq - len(ledger.log) + 1


def _find(ledger: Ledger, cursor: Cursor) -> Event | None:
    """The event with the cursor's number, if it is kept; CursorLostError as for `events`."""
    first = _first(ledger)
    there = ledger.log[cursor.seq - first] if first <= cursor.seq <= ledger.seq else None
    check_cursor(ledger.info.queue, cursor, first, ledger.seq, there)
    return there
