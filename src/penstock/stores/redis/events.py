"""The event log: one stream per queue, with its events' numbers as ids."""

from collections.abc import Sequence
from typing import Any, Final

from penstock.core.cursors import Cursor, check_cursor, placed, read_cursor
from penstock.core.events import Event
from penstock.core.job import QueueRef
from penstock.stores.bounds import DAMAGED_EVENT_LIMIT
from penstock.stores.corruption import corrupt_events, readable_events
from penstock.stores.redis.backend import Backend
from penstock.stores.redis.codec.events import Entry, columns_of, event_of
from penstock.stores.redis.keys import QueueKeys, keys_of
from penstock.stores.values import DamagedEvent, EventColumns

Entries = Sequence[Entry]
PAGE: Final = 1_000
"""Entries that are looked at in one round trip."""


class RedisEvents:
    """Reads and trims the streams. They are written by the scripts of the moves."""

    def __init__(self, backend: Backend) -> None:
        self._server = backend.server

    async def read_events(self, queue: QueueRef, after: str | int = 0, limit: int = 1_000) -> list[Event]:
        """The events that follow; CursorLostError when that cannot be told."""
        cursor = read_cursor("after", after)
        while True:
            found = await self._read(queue, cursor, max(limit, 0))
            events = list(readable_events(queue, found, lambda entry: _event(queue, entry)))
            if events or not found:
                return [placed(event) for event in events]
            # None of them can be read: others may follow.
            cursor = Cursor(_seq(found[-1][0]))

    async def _read(self, queue: QueueRef, cursor: Cursor, limit: int) -> Entries:
        """The entries after the cursor, in one round trip and of one moment with the one at it."""
        keys = keys_of(queue)
        found, kept, newest = await self._server.commands(
            [
                ("XRANGE", keys.events, f"{cursor.seq}-0", "+", "COUNT", limit + 1),
                ("XRANGE", keys.events, "-", "+", "COUNT", 1),
                ("HGET", keys.meta, "seq"),
            ],
            at_once=True,
        )
        last = int(newest or 0)
        first = _seq(kept[0][0]) if kept else last + 1
        here = [entry for entry in found[:1] if _seq(entry[0]) == cursor.seq]
        there = read_cursor("cursor", columns_of(here).cursors(queue)[0]) if here else None
        check_cursor(queue, cursor, first, last, there)
        entries: Entries = found[len(here) :][:limit]
        return entries

    async def damaged_events(
        self, queue: QueueRef, after: int = 0, limit: int = DAMAGED_EVENT_LIMIT
    ) -> list[DamagedEvent]:
        """The events with higher numbers that cannot be read."""
        key, damages = keys_of(queue).events, list[DamagedEvent]()
        while len(damages) < limit:
            found = await self._server.command("XRANGE", key, f"{after + 1}-0", "+", "COUNT", PAGE)
            rows = [(_seq(entry[0]), entry) for entry in found]
            damages += corrupt_events(rows, lambda entry: _event(queue, entry))
            if len(found) < PAGE:
                break
            after = rows[-1][0]
        return damages[: max(limit, 0)]

    async def event_columns(
        self, queue: QueueRef, after: str | int, through: str, limit: int
    ) -> EventColumns:
        """The events that follow, up to a cursor, without a record of each."""
        cursor, end = read_cursor("after", after), read_cursor("through", through)
        keys, start = keys_of(queue), f"{cursor.seq + 1}-0"
        here, kept, newest, found = await self._server.commands(
            [
                *_whereabouts(keys, cursor),
                ("XRANGE", keys.events, start, f"{end.seq}-0", "COUNT", max(limit, 1)),
            ],
            at_once=True,
        )
        _check(queue, cursor, here, kept, newest)
        return columns_of(found[:limit])

    async def cursor_after(self, queue: QueueRef, after: str | int = 0, limit: int | None = None) -> str:
        """The cursor of the last of so many events that follow; numbers have no gaps."""
        cursor = read_cursor("after", after)
        keys = keys_of(queue)
        far = "+" if limit is None else f"{cursor.seq + limit}-0"
        here, kept, newest, found, after_it = await self._server.commands(
            [
                *_whereabouts(keys, cursor),
                ("XREVRANGE", keys.events, far, f"{cursor.seq}-0", "COUNT", 1),
                ("XRANGE", keys.events, f"{cursor.seq + 1}-0", "+", "COUNT", 1),
            ],
            at_once=True,
        )
        _check(queue, cursor, here, kept, newest)
        last, reached = int(newest or 0), _seq(found[0][0]) if found else cursor.seq
        if reached < last and (limit is None or (limit and not after_it)):
            # Someone has deleted the newest entries: who reads up to their numbers finds them missing.
            return str(last)
        if found == here and limit:
            # Someone has deleted entries in the middle: those that are missing must not stop a reader.
            found = after_it or here
        return columns_of(found).cursors(queue)[0] if found else str(cursor)

    async def cursor_at(self, queue: QueueRef, at: int) -> str:
        """The cursor before a time, by halves: time does not go back from one number to the next."""
        first, last = await self.event_range(queue)
        low, high = first, last + 1
        while low < high:
            middle = (low + high) // 2
            found = await self._between(queue, middle, last)
            # One that cannot be read counts as late: rather some events too many than too few.
            times = found.fields.get("at", (at,))
            low, high = (middle + 1, high) if (times[0] or at) < at else (low, middle)
        return str(low - 1) if low == first else (await self._between(queue, low - 1, last)).cursors(queue)[0]

    async def _between(self, queue: QueueRef, first: int, last: int) -> EventColumns:
        """The event with the first of two numbers; the next where it is gone."""
        key = keys_of(queue).events
        return columns_of(await self._server.command("XRANGE", key, f"{first}-0", f"{last}-0", "COUNT", 1))

    async def event_range(self, queue: QueueRef) -> tuple[int, int]:
        """The numbers of the oldest event kept and of the newest; (n + 1, n) when none is kept."""
        keys = keys_of(queue)
        kept, seq = await self._server.commands(
            [("XRANGE", keys.events, "-", "+", "COUNT", 1), ("HGET", keys.meta, "seq")], at_once=True
        )
        newest = int(seq or 0)
        return (_seq(kept[0][0]) if kept else newest + 1), newest

    async def trim(self, queue: QueueRef, *, through: int) -> int:
        """Forget events up to this number; how many were."""
        return int(await self._server.command("XTRIM", keys_of(queue).events, "MINID", f"{through + 1}-0"))


def _event(queue: QueueRef, entry: Entry) -> Event:
    number, fields = entry
    return event_of(queue, _seq(number), fields[1] if len(fields) > 1 else b"")


def _seq(number: bytes) -> int:
    return int(number.partition(b"-")[0])


def _whereabouts(keys: QueueKeys, cursor: Cursor) -> Sequence[Sequence[Any]]:
    """What tells whether the log has all that follows a cursor: its event, the oldest, the newest number."""
    return (
        ("XRANGE", keys.events, f"{cursor.seq}-0", f"{cursor.seq}-0"),
        ("XRANGE", keys.events, "-", "+", "COUNT", 1),
        ("HGET", keys.meta, "seq"),
    )


def _check(queue: QueueRef, cursor: Cursor, here: Entries, kept: Entries, newest: bytes | None) -> None:
    """CursorLostError by what was found of a cursor's whereabouts."""
    last = int(newest or 0)
    there = read_cursor("cursor", columns_of(here).cursors(queue)[0]) if here else None
    check_cursor(queue, cursor, _seq(kept[0][0]) if kept else last + 1, last, there)
