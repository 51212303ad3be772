"""The event log: one stream per queue, with its events' numbers as ids."""

from typing import Final

from penstock.core.errors import CursorLostError
from penstock.core.events import Event
from penstock.core.job import QueueRef
from penstock.stores.redis.keys import keys_of
from penstock.stores.redis.records import event_of
from penstock.stores.redis.server import Server

_FIELD: Final = b"event"


class StreamLog:
    """Reads and trims the streams. They are written by the scripts of the moves."""

    def __init__(self, server: Server) -> None:
        self._server = server

    async def events(self, queue: QueueRef, after: int, limit: int) -> list[Event]:
        """Events with a higher number; CursorLostError when some of them were trimmed."""
        keys = keys_of(queue)
        found, kept, newest = await self._server.commands(
            [
                ("XRANGE", keys.events, f"{after + 1}-0", "+", "COUNT", max(limit, 1)),
                ("XRANGE", keys.events, "-", "+", "COUNT", 1),
                ("HGET", keys.meta, "seq"),
            ],
            at_once=True,
        )
        first = _seq(kept[0][0]) if kept else int(newest or 0) + 1
        if after + 1 < first:
            raise CursorLostError(f"events {after + 1} to {first - 1} of queue {queue} were trimmed")
        return [event_of(queue, _seq(number), fields[_FIELD]) for number, fields in found[: max(limit, 0)]]

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


def _seq(number: bytes) -> int:
    return int(number.partition(b"-")[0])
