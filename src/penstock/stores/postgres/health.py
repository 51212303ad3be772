"""What the store says of itself, and its fsck."""

from typing import Final

from penstock.core.job import QueueRef
from penstock.stores.postgres.backend import Backend
from penstock.stores.postgres.check import findings
from penstock.stores.postgres.counting import Counting
from penstock.stores.postgres.migrate import version_of
from penstock.stores.postgres.quarantine import PostgresQuarantine
from penstock.stores.postgres.renumbering import renumbers
from penstock.stores.values import Durability, Finding, StoreInfo

_INFO: Final = """
SELECT
    (SELECT value FROM penstock.meta WHERE name = 'clock_offset_ms'),
    current_setting('server_version'), current_setting('fsync'), current_setting('synchronous_commit'),
    current_setting('synchronous_standby_names')
"""


class PostgresHealth:
    """The part `Health`."""

    def __init__(self, backend: Backend, counting: Counting, quarantine: PostgresQuarantine) -> None:
        self._backend = backend
        self._counting = counting
        self._quarantine = quarantine

    async def info(self) -> StoreInfo:
        """The kind, durability, versions and clock of this store."""
        async with self._backend.engine.transaction() as connection:
            version = await version_of(connection, self._backend.engine)
        [(offset, server, fsync, commit, standbys)] = await self._backend.query(_INFO)
        return StoreInfo(
            kind="postgres",
            url=self._backend.address.shown,
            durability=_durability(fsync, commit, standbys),
            server_version=f"PostgreSQL {server}",
            schema_version=version,
            clock_offset_ms=offset,
        )

    @renumbers
    async def check(self, queue: QueueRef) -> list[Finding]:
        """Records, keys, events and counts agree."""
        number = await self._backend.find_number(queue)
        if number is None:
            return []
        await self._backend.verify_number(queue, number)
        damages = await self._quarantine.damaged_rows(queue, number)
        return [
            *await findings(self._backend.query, number),
            *(Finding(what, job) for job, what in damages),
            *(Finding(what) for what in await self._counting.compare(number)),
        ]


def _durability(fsync: str, commit: str, standbys: str) -> Durability:
    if fsync != "on" or commit == "off":
        # Then a crash of a process or of the server loses nothing, but one of the machine may.
        return Durability.SERVER if commit != "off" else Durability.PROCESS
    return Durability.REPLICATED if standbys and commit != "local" else Durability.POWER
