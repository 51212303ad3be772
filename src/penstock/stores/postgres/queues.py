"""The queues themselves, the store's clock, and what it says of itself."""

from contextlib import AbstractAsyncContextManager
from typing import Any, Final

from penstock.core.clocks import ClockStep
from penstock.core.job import QueueRef
from penstock.stores.postgres.check import findings
from penstock.stores.postgres.migrate import version_of
from penstock.stores.postgres.quarantine import PostgresQuarantine
from penstock.stores.postgres.renumbering import renumbers
from penstock.stores.postgres.room import SHUT_OUT
from penstock.stores.protocol import Bell, QueueBell
from penstock.stores.rows import declaration_of, restored, stored
from penstock.stores.values import Durability, Finding, Pause, QueueInfo, StoreInfo, Topic

_COLUMNS: Final = (
    "name, number, made, declaration, arrival_us, "
    "(SELECT value FROM penstock.meta WHERE meta.name = 'clock_step_at'), "
    "(SELECT value FROM penstock.meta WHERE meta.name = 'clock_step_back_ms'), "
    "paused_at, pause_reason, pause_by, paused_until"
)
_QUEUE: Final = f"SELECT {_COLUMNS} FROM penstock.queue WHERE tenant = $1 AND name = $2"  # noqa: S608 (constants)
_QUEUES: Final = f"SELECT {_COLUMNS} FROM penstock.queue WHERE tenant = $1 ORDER BY name"  # noqa: S608 (constants)

_PAUSE: Final = """
UPDATE penstock.queue SET
    paused_at = CASE WHEN $3::boolean THEN given.now END,
    paused_until = CASE WHEN $3::boolean THEN given.now + $4::bigint END,
    pause_reason = $5,
    pause_by = $6
FROM (SELECT penstock.now_us($2::bigint) / 1000 AS now) AS given
WHERE queue.n = $1
RETURNING 1
"""

_TURN: Final = "UPDATE penstock.meta SET value = value + $1::bigint WHERE name = 'clock_offset_ms'"
_INFO: Final = """
SELECT
    (SELECT value FROM penstock.meta WHERE name = 'clock_offset_ms'),
    current_setting('server_version'), current_setting('fsync'), current_setting('synchronous_commit'),
    current_setting('synchronous_standby_names')
"""


class PostgresQueues(PostgresQuarantine):
    """Queues, clock, health and bells."""

    @renumbers
    async def open_queue(self, queue: QueueRef) -> QueueInfo:
        """The queue, made if it is new."""
        number = await self._number(queue)
        info = await self.queue(queue)
        if info is None:
            await self._verify(queue, number)
        return info or QueueInfo(queue, 0)

    async def queue(self, queue: QueueRef) -> QueueInfo | None:
        """The queue, if there is one."""
        rows = await self._ask(_QUEUE, queue.tenant, queue.name)
        return _info(queue.tenant, *rows[0]) if rows else None

    async def queues(self, tenant: str) -> list[QueueInfo]:
        """All queues of a tenant, by name."""
        found = [_info(tenant, *row) for row in await self._ask(_QUEUES, tenant)]
        # The database may sort by the rules of a language.
        return sorted(found, key=lambda info: info.queue.name)

    async def tenants(self) -> list[str]:
        """The tenants that have queues, by name; those alone that the role may see."""
        return sorted(tenant for (tenant,) in await self._ask("SELECT DISTINCT tenant FROM penstock.queue"))

    async def is_shut_out(self, tenant: str) -> bool:
        """True where there is a wall between tenants, and the user was not admitted to this one."""
        [(is_out,)] = await self._ask(SHUT_OUT, tenant)
        return bool(is_out)

    @renumbers
    async def pause(self, queue: QueueRef, pause: Pause | None, for_ms: int | None = None) -> None:
        """Stop claims, or let them go on."""
        said = (None, None) if pause is None else (stored(pause.reason), stored(pause.by))
        number = await self._number(queue)
        if not await self._ask(_PAUSE, number, self._seen_us, pause is not None, for_ms, *said):
            await self._verify(queue, number)
        self._ring_ready(queue)

    async def now(self) -> int:
        """Unix milliseconds by the server's clock and the offset in the database."""
        return await self._now_us() // 1000

    async def turn(self, by_ms: int) -> None:
        """Turn the clock; the offset is kept in the database."""
        await self._ask(_TURN, by_ms)
        self._forget_hints()
        self._wakeups.ring_turned()

    async def info(self) -> StoreInfo:
        """What this store is."""
        async with self._engine.transaction() as connection:
            version = await version_of(connection, self._engine)
        [(offset, server, fsync, commit, standbys)] = await self._ask(_INFO)
        return StoreInfo(
            kind="postgres",
            url=self._address.shown,
            durability=_durability(fsync, commit, standbys),
            server_version=f"PostgreSQL {server}",
            schema_version=version,
            clock_offset_ms=offset,
        )

    @renumbers
    async def check(self, queue: QueueRef) -> list[Finding]:
        """Records, keys and events agree."""
        number = await self._known(queue)
        if number is None:
            return []
        await self._verify(queue, number)
        damages = await self._damaged_rows(queue, number)
        return [*await findings(self._ask, number), *(Finding(what, job) for job, what in damages)]

    def bell(self, queue: QueueRef, topic: Topic) -> AbstractAsyncContextManager[Bell]:
        """Rings at once for changes of this store, and within milliseconds for those of others."""
        return self._wakeups.hang(queue, topic)

    def queue_bell(self, tenant: str) -> AbstractAsyncContextManager[QueueBell]:
        """As `bell`, over one channel for all queues of the tenant."""
        return self._wakeups.hang_for_all(tenant)

    def _ring_ready(self, queue: QueueRef) -> None:
        self._wakeups.ring(queue, {Topic.READY})


def _info(
    tenant: str,
    name: str,
    number: int,
    made: str,
    declaration: str | None,
    arrival_us: int,
    step_at: int,
    step_back_ms: int,
    *pause: Any,
) -> QueueInfo:
    at, reason, by, until = pause
    return QueueInfo(
        QueueRef(tenant, name),
        number,
        None if at is None else Pause(at, restored(reason), restored(by), until),
        None if declaration is None else declaration_of(declaration),
        made,
        arrival_us,
        ClockStep(step_at, step_back_ms) if step_at else None,
    )


def _durability(fsync: str, commit: str, standbys: str) -> Durability:
    if fsync != "on" or commit == "off":
        # Neither a process nor the server's own crash loses anything then, but the machine's may.
        return Durability.SERVER if commit != "off" else Durability.PROCESS
    return Durability.REPLICATED if standbys and commit != "local" else Durability.POWER
