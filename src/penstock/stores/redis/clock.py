"""The store's clock, as its users read and turn it."""

from penstock.core.job import QueueRef
from penstock.stores.redis import keys
from penstock.stores.redis.backend import Backend
from penstock.stores.redis.keys import keys_of
from penstock.stores.redis.notifier import RedisNotifier


class RedisClock:
    """Reads the clock, and turns it for the store and for each of its queues."""

    def __init__(self, backend: Backend, notifier: RedisNotifier) -> None:
        self._server = backend.server
        self._time = backend.time
        self._notifier = notifier
        self.now = backend.time.now

    async def advance_clock(self, by_ms: int) -> None:
        """Turn the clock of every queue and notify every subscriber."""
        if by_ms > 0:
            # Before the store's own clock: no caller that was answered the new time meets a queue without it.
            await self._turn_queues(await self._time.offset_ms() + by_ms)
        # A queue that is opened meanwhile has registered itself before it reads the offset: either it
        # reads the new one, or it is found here.
        offset_ms = await self._server.command("HINCRBY", keys.STORE, "offset_ms", by_ms)
        await self._turn_queues(offset_ms)
        await self._server.command("PUBLISH", keys.turned(self._server.database), "")
        self._notifier.notify_all()

    async def _turn_queues(self, offset_ms: int) -> None:
        names = [name.decode().split("/") for name in await self._server.command("SMEMBERS", keys.QUEUES)]
        if names:
            await self._server.commands(
                [
                    ("HSET", keys_of(QueueRef(tenant, name)).meta, "offset_ms", offset_ms)
                    for tenant, name in names
                ]
            )
