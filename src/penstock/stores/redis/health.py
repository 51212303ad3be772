"""The version and durability of the server, and the comparison of records with indexes (fsck)."""

from penstock.stores.redis import opening
from penstock.stores.redis.backend import Backend
from penstock.stores.redis.inspection.inspector import Inspector
from penstock.stores.redis.migrate import SCHEMA_VERSION
from penstock.stores.values import StoreInfo


class RedisHealth:
    """Describes the server, and compares records with indexes."""

    def __init__(self, backend: Backend) -> None:
        self._server = backend.server
        self._time = backend.time
        self.check = Inspector(backend.server).check

    async def info(self) -> StoreInfo:
        return StoreInfo(
            "redis",
            self._server.url,
            await opening.durability(self._server),
            await opening.server_version(self._server),
            SCHEMA_VERSION,
            await self._time.known_offset_ms(),
            await opening.replication(self._server),
        )
