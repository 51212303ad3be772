"""The event log: one stream per queue, with the number of an entry's first event as its id."""

from collections.abc import Iterator, Sequence
from typing import Final

from penstock.core.cursors import MAX_SEQ, Cursor, read_cursor
from penstock.core.errors import StoreFormatError
from penstock.core.events import Event
from penstock.core.job import QueueRef
from penstock.stores.bounds import DAMAGED_EVENT_LIMIT
from penstock.stores.corruption import readable_events
from penstock.stores.redis.backend import Backend
from penstock.stores.redis.codec.event_columns import columns_of, error_of, events_of
from penstock.stores.redis.codec.runs import Run
from penstock.stores.redis.event_pages import EventPages
from penstock.stores.redis.keys import keys_of
from penstock.stores.values import DamagedEvent, EventColumns

PAGE: Final = 10_000
"""Events that are looked at in one go for those that cannot be read."""
_AT: Final = 2
"""The place of an event's time."""


class RedisEvents:
    """Reads and trims the streams. They are written by the scripts of the moves."""

    def __init__(self, backend: Backend) -> None:
        self._server = backend.server
        self._pages = EventPages(backend.server)

    async def read_events(self, queue: QueueRef, after: str | int = 0, limit: int = 1_000) -> list[Event]:
        """The events that follow; CursorLostError when that cannot be told."""
        cursor = read_cursor("after", after)
        while True:
            runs = await self._pages.read(queue, cursor, max(limit, 0))
            parts = readable_events(queue, runs, lambda run: _records(queue, run))
            events = [event for part in parts for event in part]
            if events or not runs:
                return events
            # None of them can be read: others may follow.
            cursor = Cursor(runs[-1].last)

    async def damaged_events(
        self, queue: QueueRef, after: int = 0, limit: int = DAMAGED_EVENT_LIMIT
    ) -> list[DamagedEvent]:
        """The events with higher numbers that cannot be read."""
        damages: list[DamagedEvent] = []
        cursor = Cursor(min(after, MAX_SEQ))
        while len(damages) < limit and (
            runs := await self._pages.read(queue, cursor, PAGE, is_checked=False)
        ):
            damages += _damages(queue, runs)
            cursor = Cursor(runs[-1].last)
        return damages[: max(limit, 0)]

    async def event_columns(
        self, queue: QueueRef, after: str | int, through: str, limit: int
    ) -> EventColumns:
        """The events that follow, up to a cursor, without a record of each."""
        cursor, end = read_cursor("after", after), read_cursor("through", through)
        return columns_of(await self._pages.read(queue, cursor, max(limit, 0), through=end.seq))

    async def cursor_after(self, queue: QueueRef, after: str | int = 0, limit: int | None = None) -> str:
        """The cursor of the last of so many events that follow; numbers have no gaps."""
        cursor = read_cursor("after", after)
        last, here, following = await self._pages.whereabouts(queue, cursor)
        far = last if limit is None else min(last, cursor.seq + limit)
        if far > cursor.seq:
            found = await self._pages.holding(queue, far, last)
            if found is not None and found.last >= far:
                return found.cursor(queue, far)
            if limit is None or following is None:
                # Somebody has deleted the newest entries: who reads up to their numbers finds them missing.
                return str(last)
            if found is not None and found.last > cursor.seq:
                return found.cursor(queue, found.last)
            # Somebody has deleted entries in the middle: those that are missing must not stop a reader.
            return following.cursor(queue, following.first)
        return str(cursor) if here is None else here.cursor(queue, cursor.seq)

    async def cursor_at(self, queue: QueueRef, at: int) -> str:
        """The cursor before a time, by halves: time does not go back from one number to the next."""
        first, last = await self.event_range(queue)
        low, high = first, last + 1
        while low < high:
            middle = (low + high) // 2
            run = await self._pages.holding(queue, middle, last)
            if run is None or run.why is not None or run.last < middle:
                # What cannot be read counts as late: rather some events too many than too few.
                high = middle if run is None or run.last < middle else max(low, run.first)
                continue
            is_before = run.value(_AT, middle) < at
            if _AT in run.columns:
                low, high = (middle + 1, high) if is_before else (low, middle)
            else:
                low, high = (run.last + 1, high) if is_before else (low, max(low, run.first))
        found = None if low == first else await self._pages.holding(queue, low - 1, last)
        return str(low - 1) if found is None or found.last < low - 1 else found.cursor(queue, low - 1)

    async def event_range(self, queue: QueueRef) -> tuple[int, int]:
        """The numbers of the oldest event kept and of the newest; (n + 1, n) when none is kept."""
        return await self._pages.range(queue)

    async def trim(self, queue: QueueRef, *, through: int) -> int:
        """Forget events up to this number; how many were. Of an entry with later ones too, all stay."""
        before, newest = await self._pages.range(queue)
        last = min(through, newest)
        if last < before:
            return 0
        held = await self._pages.holding(queue, last + 1, newest) if last < newest else None
        start = last + 1 if held is None or held.last <= last else held.first
        await self._server.command("XTRIM", keys_of(queue).events, "MINID", f"{start}-0")
        after, _ = await self._pages.range(queue)
        return after - before


def _records(queue: QueueRef, run: Run) -> list[Event]:
    if run.why is not None:
        raise StoreFormatError(error_of(queue, run))
    return list(events_of(queue, run))


def _damages(queue: QueueRef, runs: Sequence[Run]) -> Iterator[DamagedEvent]:
    for run in runs:
        try:
            _records(queue, run)
        except StoreFormatError as error:
            yield DamagedEvent(run.first, str(error), run.last if run.last > run.first else None)
