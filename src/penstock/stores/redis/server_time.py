"""The store's time: that of the server, and an offset that only the test kit sets."""

from penstock.core.clocks import time_after
from penstock.core.errors import StoreUnavailableError
from penstock.stores.redis import keys
from penstock.stores.redis.server import Server


class ServerTime:
    """Reads the time. Scripts find the offset in their queue's metadata."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._last_us = 0
        self._last_offset_ms = 0

    @property
    def last_us(self) -> int:
        """The time when it was read last; 0 before."""
        return self._last_us

    async def offset_ms(self) -> int:
        """How far the clock is turned."""
        return int(await self._server.command("HGET", keys.STORE, "offset_ms") or 0)

    async def known_offset_ms(self) -> int:
        """How far the clock is turned; as it was last known while the node that has this is away."""
        await self.now()
        return self._last_offset_ms

    async def now(self) -> int:
        """Unix milliseconds; not earlier than before, unless the clock was set back by more than a minute."""
        time, offset = await self._server.commands_where_reachable(
            [("TIME",), ("HGET", keys.STORE, "offset_ms")]
        )
        if isinstance(time, StoreUnavailableError):
            raise time
        seconds, micros = time
        # The node of a cluster that has the offset may be away: its last value holds.
        if not isinstance(offset, StoreUnavailableError):
            self._last_offset_ms = int(offset or 0)
        clock_us = int(seconds) * 1_000_000 + int(micros) + self._last_offset_ms * 1000
        self._last_us = time_after(self._last_us, clock_us)
        return self._last_us // 1000
