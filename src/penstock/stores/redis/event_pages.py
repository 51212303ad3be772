"""Pages of the event log: the entries that hold events of some numbers, in few round trips."""

import math
from collections.abc import Sequence
from typing import Final

from penstock.core.cursors import Cursor, check_cursor
from penstock.core.job import QueueRef
from penstock.stores.redis.codec.runs import Entry, Run, first_of, read_runs
from penstock.stores.redis.keys import keys_of
from penstock.stores.redis.server import Server

FIRST_ENTRIES: Final = 4
"""Entries that are fetched before it is known how many events they have: each may have a thousand."""
MOST_ENTRIES: Final = 10_000


class EventPages:
    """Reads runs of a queue's stream by the numbers of events."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._events_per_entry = 0.0
        """As they were in the last page; 0 before the first one."""

    async def read(
        self,
        queue: QueueRef,
        cursor: Cursor,
        limit: int,
        *,
        through: int | None = None,
        is_checked: bool = True,
    ) -> list[Run]:
        """So many events after the cursor, up to `through`; fewer where others were trimmed meanwhile.

        CursorLostError by what stands at the cursor, in one moment with the first of the events.
        """
        size = min(limit + 1, self._likely_entries(limit))
        here, found, last = await self._around(queue, cursor.seq, size)
        held = read_runs([*here, *found[:1]], last)[: len(here)]
        if is_checked:
            _check(queue, cursor, held[0] if held else None, found, last)
        limit = limit if through is None else min(limit, through - cursor.seq)
        runs, left, reached = list[Run](), limit, cursor.seq
        if held and held[0].last > reached:
            reached = held[0].last
            runs = [held[0].between(cursor.seq + 1, held[0].last)]
            left -= runs[0].count
        while left > 0:
            is_end = len(found) < size
            for run in _closed(found, last, is_end=is_end):
                if through is not None and run.first > through:
                    left = 0
                    break
                runs.append(run)
                left -= run.count
                reached = run.last
            if found:
                self._events_per_entry = max(1.0, (reached - first_of(found[0]) + 1) / len(found))
            if left <= 0 or is_end:
                break
            size = _size(left, sum(run.count for run in runs), len(runs))
            _, found, last = await self._around(queue, reached, size)
            if not found or first_of(found[0]) != reached + 1:
                # Trimmed meanwhile, or deleted: the next call tells which.
                break
        return _cut(runs, limit, through)

    def _likely_entries(self, limit: int) -> int:
        """How many entries are likely to have so many events, and one more: it tells where the last ends."""
        if not self._events_per_entry:
            return FIRST_ENTRIES
        return min(MOST_ENTRIES, math.ceil(limit / self._events_per_entry) + 1)

    async def whereabouts(self, queue: QueueRef, cursor: Cursor) -> tuple[int, Run | None, Run | None]:
        """The newest number, the run with the cursor's event, and that with the first one after it.

        CursorLostError by what stands at the cursor.
        """
        here, found, last = await self._around(queue, cursor.seq, 2)
        held = read_runs([*here, *found[:1]], last)[: len(here)]
        _check(queue, cursor, held[0] if held else None, found, last)
        run = held[0] if held and held[0].last >= cursor.seq else None
        if run is not None and run.last > cursor.seq:
            return last, run, run.between(cursor.seq + 1, run.last)
        return last, run, next(iter(read_runs(found, last)), None)

    async def holding(self, queue: QueueRef, number: int, last: int) -> Run | None:
        """The run with the event of a number, or the last one before it where that is gone."""
        key = keys_of(queue).events
        here, found = await self._server.commands(
            [
                ("XREVRANGE", key, f"{number}-0", "-", "COUNT", 1),
                ("XRANGE", key, f"{number + 1}-0", "+", "COUNT", 1),
            ],
            at_once=True,
        )
        return read_runs([*here, *found], last)[0] if here else None

    async def range(self, queue: QueueRef) -> tuple[int, int]:
        """The numbers of the oldest event kept and of the newest; (n + 1, n) when none is kept."""
        keys = keys_of(queue)
        kept, seq = await self._server.commands(
            [("XRANGE", keys.events, "-", "+", "COUNT", 1), ("HGET", keys.meta, "seq")], at_once=True
        )
        newest = int(seq or 0)
        return (first_of(kept[0]) if kept else newest + 1), newest

    async def _around(self, queue: QueueRef, number: int, size: int) -> tuple[list[Entry], list[Entry], int]:
        """The last entry that begins up to a number, those that begin after it, and the newest number."""
        keys = keys_of(queue)
        here, found, newest = await self._server.commands(
            [
                ("XREVRANGE", keys.events, f"{number}-0", "-", "COUNT", 1),
                ("XRANGE", keys.events, f"{number + 1}-0", "+", "COUNT", size),
                ("HGET", keys.meta, "seq"),
            ],
            at_once=True,
        )
        return here, found, int(newest or 0)


def _check(queue: QueueRef, cursor: Cursor, held: Run | None, found: Sequence[Entry], last: int) -> None:
    """CursorLostError by what was found around a cursor."""
    if held is None:
        check_cursor(queue, cursor, first_of(found[0]) if found else last + 1, last, None)
        return
    mark = held.mark(queue, cursor.seq) if held.last >= cursor.seq else None
    # What is trimmed is the oldest: nothing after this run is.
    check_cursor(queue, cursor, held.first, last, None if mark is None else Cursor(cursor.seq, mark))


def _closed(found: Sequence[Entry], last: int, *, is_end: bool) -> list[Run]:
    """The runs, but for the last one where it cannot be read and nothing says yet where it ends."""
    runs = read_runs(found, last)
    if not is_end and len(runs) > 1 and runs[-1].why is not None:
        runs.pop()
    return runs


def _size(left: int, events: int, entries: int) -> int:
    """How many entries are likely to have the events that are still wanted, and one more."""
    return min(MOST_ENTRIES, -(-left * entries // max(events, 1)) + 1)


def _cut(runs: list[Run], limit: int, through: int | None) -> list[Run]:
    """So many rows of them, none beyond a number."""
    kept: list[Run] = []
    for run in runs:
        end = run.last if run.why is not None else min(run.last, run.first + limit - 1)
        if through is not None:
            end = min(end, through)
        if limit <= 0 or end < run.first:
            break
        kept.append(run.between(run.first, end))
        limit -= kept[-1].count
    return kept
