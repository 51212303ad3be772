"""The event log: one stream per queue, with its events' numbers as ids, and a hash of its readers."""

from collections.abc import Iterator
from typing import Final

from penstock.core.cursors import Cursor, check_cursor, placed, read_cursor
from penstock.core.events import Event
from penstock.core.job import QueueRef
from penstock.core.names import check_name
from penstock.stores.protocol import READER_LEASE_MS, Reader
from penstock.stores.redis.keys import keys_of
from penstock.stores.redis.queues import Queues
from penstock.stores.redis.records import event_of
from penstock.stores.redis.server import Server

_READERS: Final = "queues/readers"


class StreamLog:
    """Reads and trims the streams. They are written by the scripts of the moves."""

    def __init__(self, server: Server) -> None:
        self._server = server

    async def events(self, queue: QueueRef, after: str | int, limit: int) -> list[Event]:
        """The events that follow; CursorLostError when that cannot be told."""
        cursor = read_cursor("after", after)
        _, found = await self._read(queue, cursor, max(limit, 0))
        return [placed(event) for event in found]

    async def find(self, queue: QueueRef, cursor: Cursor) -> Event | None:
        """The event with the cursor's number, if it is kept; CursorLostError as for `events`."""
        there, _ = await self._read(queue, cursor, 0)
        return there

    async def _read(self, queue: QueueRef, cursor: Cursor, limit: int) -> tuple[Event | None, list[Event]]:
        """The event at the cursor and those after it, in one round trip and of one moment."""
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
        events = [event_of(queue, _seq(number), packed) for number, packed in _entries(found)]
        there = events.pop(0) if events and events[0].seq == cursor.seq else None
        check_cursor(queue, cursor, first, last, there)
        return there, events[:limit]

    async def event_range(self, queue: QueueRef) -> tuple[int, int]:
        """The numbers of the oldest event kept and of the newest; (n + 1, n) when none is kept."""
        keys = keys_of(queue)
        kept, seq = await self._server.commands(
            [("XRANGE", keys.events, "-", "+", "COUNT", 1), ("HGET", keys.meta, "seq")], at_once=True
        )
        newest = int(seq or 0)
        return (_seq(kept[0][0]) if kept else newest + 1), newest

    async def trim(self, queue: QueueRef, through: int) -> int:
        """Forget events up to this number; how many were."""
        return int(await self._server.command("XTRIM", keys_of(queue).events, "MINID", f"{through + 1}-0"))


class StreamReaders:
    """The readers of the store's logs."""

    _server: Server
    _queues: Queues
    _log: StreamLog

    async def keep_reader(self, queue: QueueRef, name: str, cursor: str | int) -> Reader:
        check_name("reader", name)
        place = read_cursor("cursor", cursor)
        there = await self._log.find(queue, place)
        if there is not None:
            place = Cursor(place.seq, there.mark)
        kept_until = await self._queues.run(queue, _READERS, "keep", name, str(place), READER_LEASE_MS)
        return Reader(name, str(place), place.seq, int(kept_until))

    async def readers(self, queue: QueueRef) -> list[Reader]:
        facts = await self._server.command("HGETALL", keys_of(queue).readers)
        return [_reader(*each) for each in sorted(facts.items())]

    async def drop_reader(self, queue: QueueRef, name: str) -> bool:
        return bool(await self._server.command("HDEL", keys_of(queue).readers, name))

    async def forget_readers(self, queue: QueueRef) -> int:
        return int(await self._queues.run(queue, _READERS, "forget"))


def _reader(name: bytes, fact: bytes) -> Reader:
    kept_until, _, cursor = fact.decode().partition(" ")
    return Reader(name.decode(), cursor, read_cursor("cursor", cursor).seq, int(kept_until))


def _entries(found: list[tuple[bytes, dict[bytes, bytes]]]) -> Iterator[tuple[bytes, bytes]]:
    """The ids of a stream's entries, and the one value that each has."""
    for number, fields in found:
        (packed,) = fields.values()
        yield number, packed


def _seq(number: bytes) -> int:
    return int(number.partition(b"-")[0])
