"""What the SQLite store is, and its fsck."""

import sqlite3

from penstock.core.job import QueueRef
from penstock.stores.sqlite.backend import Backend
from penstock.stores.sqlite.check import findings
from penstock.stores.sqlite.clock import offset_ms
from penstock.stores.values import Finding, StoreInfo


class SqliteHealth:
    """Says what the store is, and what is wrong in the file."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def info(self) -> StoreInfo:
        """What this store is."""

        def work(connection: sqlite3.Connection) -> StoreInfo:
            return StoreInfo(
                kind="sqlite",
                url=f"sqlite:///{self._backend.engine.path}",
                durability=self._backend.engine.durability,
                server_version=f"SQLite {sqlite3.sqlite_version}",
                schema_version=self._backend.engine.schema_version,
                clock_offset_ms=offset_ms(connection),
            )

        return await self._backend.read(work)

    async def check(self, queue: QueueRef) -> list[Finding]:
        """Records and indexes agree, counts add up."""
        return await self._backend.read(lambda connection: findings(connection, queue))
