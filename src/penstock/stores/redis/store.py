"""The store on Redis or Valkey: it opens, closes and clones, and puts its parts together."""

from collections.abc import Mapping
from typing import ClassVar

from penstock.bloom.rotating import RotatingBloom
from penstock.stores.projection import ProjectedTime
from penstock.stores.redis import opening
from penstock.stores.redis.backend import Backend
from penstock.stores.redis.claims import RedisClaims
from penstock.stores.redis.clock import RedisClock
from penstock.stores.redis.events import RedisEvents
from penstock.stores.redis.flows import RedisFlows
from penstock.stores.redis.ghosts import GhostScan
from penstock.stores.redis.health import RedisHealth
from penstock.stores.redis.key_value import RedisKeyValue
from penstock.stores.redis.moves import RedisMoves
from penstock.stores.redis.notifier import RedisNotifier
from penstock.stores.redis.quarantine import RedisQuarantine
from penstock.stores.redis.queues import RedisQueues
from penstock.stores.redis.readers import RedisReaders
from penstock.stores.redis.reads import RedisReads
from penstock.stores.redis.scan import RedisScan
from penstock.stores.redis.schedules import RedisSchedules
from penstock.stores.redis.scripts import Scripts
from penstock.stores.redis.server import Server
from penstock.stores.redis.upkeep import RedisUpkeep
from penstock.stores.rollup_entries import RollupEntries
from penstock.stores.worker_entries import WorkerEntries


class RedisStore:
    """A store on a Redis or Valkey server. `sources` replaces scripts by path; for tests of the tests."""

    keeps_call_order: ClassVar[bool] = True
    numbers_in_order: ClassVar[bool] = True
    is_server: ClassVar[bool] = True

    def __init__(
        self,
        url: str,
        *,
        sources: Mapping[str, str] | None = None,
        ghosts: RotatingBloom | None = None,
        projected_time: ProjectedTime | None = None,
    ) -> None:
        self._url = url
        self._sources = sources
        self._ghosts = ghosts
        self._projected_time = projected_time or ProjectedTime()
        backend = Backend(Server(url, Scripts(sources)))
        self.backend = backend
        ghost_scan = None if ghosts is None else GhostScan(backend, ghosts)
        self.quarantine = RedisQuarantine(backend)
        claims = RedisClaims(backend, self.quarantine, self._projected_time, ghost_scan)
        self.moves = RedisMoves(backend, claims, ghost_scan)
        self.reads = RedisReads(backend, self.quarantine)
        self.queues = RedisQueues(backend, self.reads)
        self.flows = RedisFlows(backend)
        self.schedules = RedisSchedules(backend, self.queues)
        self.key_value = RedisKeyValue(backend)
        self.events = RedisEvents(backend)
        self.readers = RedisReaders(backend, self.events)
        self.notifier = RedisNotifier(backend)
        self.clock = RedisClock(backend, self.notifier)
        self.workers = WorkerEntries(self.key_value, self.clock, self.notifier.publish)
        self.rollups = RollupEntries(self.key_value, self.queues)
        self.upkeep = RedisUpkeep(backend, self.queues, self.clock)
        self.health = RedisHealth(backend)
        self.scan = RedisScan(backend)

    async def open(self) -> None:
        """Connect, and refuse a server that could not keep what it accepts."""
        server = self.backend.server
        server.open()
        try:
            await opening.check_server(server)
        except BaseException:
            await server.close()
            raise
        server.proven()

    async def close(self) -> None:
        """Close every connection."""
        await self.notifier.close()
        await self.backend.server.close()

    def clone(self) -> "RedisStore":
        """Another client of the same server; the time that one of them was told holds for both."""
        return RedisStore(
            self._url, sources=self._sources, ghosts=self._ghosts, projected_time=self._projected_time
        )
