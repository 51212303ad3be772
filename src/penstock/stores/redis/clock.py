"""The store's clock: the server's time and an offset that only the test kit sets."""

from penstock.core.clocks import time_after
from penstock.core.errors import StoreUnavailableError
from penstock.core.job import QueueRef
from penstock.stores.redis import keys
from penstock.stores.redis.keys import keys_of
from penstock.stores.redis.server import Server


class ServerClock:
    """Reads and turns the clock. Scripts find the offset in their queue's metadata."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._last_us = 0
        self._last_offset_ms = 0

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

    async def turn(self, by_ms: int) -> None:
        """Turn the clock of every queue and ring every bell."""
        if by_ms > 0:
            # Ahead of the clock of all, so that nobody who was told the new time meets a queue without it.
            await self._turn_queues(await self.offset_ms() + by_ms)
        # A queue that is opened meanwhile has registered itself before it reads the offset: either it
        # reads the new one, or it is found here.
        offset_ms = await self._server.command("HINCRBY", keys.STORE, "offset_ms", by_ms)
        await self._turn_queues(offset_ms)
        await self._server.command("PUBLISH", keys.turned(self._server.database), "")

    async def _turn_queues(self, offset_ms: int) -> None:
        names = [name.decode().split("/") for name in await self._server.command("SMEMBERS", keys.QUEUES)]
        if names:
            await self._server.commands(
                [
                    ("HSET", keys_of(QueueRef(tenant, name)).meta, "offset_ms", offset_ms)
                    for tenant, name in names
                ]
            )
