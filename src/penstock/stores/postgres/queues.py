"""The queues themselves: made, listed, declared, paused and deleted."""

from collections.abc import Sequence
from typing import Any, Final

from penstock.core.clocks import ClockStep
from penstock.core.errors import DamagedQueueError
from penstock.core.job import QueueRef
from penstock.core.limits import Declaration, agreed, check_declaration
from penstock.stores.postgres.backend import Backend
from penstock.stores.postgres.deletion import QueueDeletion
from penstock.stores.postgres.queue_limits import QueueLimits
from penstock.stores.postgres.renumbering import renumbers
from penstock.stores.rows import read_declaration, restored, stored
from penstock.stores.values import KeyInfo, Pause, QueueInfo

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
    paused_at = CASE WHEN $3::boolean THEN clock.now END,
    paused_until = CASE WHEN $3::boolean THEN clock.now + $4::bigint END,
    pause_reason = $5,
    pause_by = $6
FROM (SELECT penstock.now_us($2::bigint) / 1000 AS now) AS clock
WHERE queue.n = $1
RETURNING 1
"""


class PostgresQueues:
    """The part `Queues`."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._limits = QueueLimits(backend)
        self.delete_queue = QueueDeletion(backend).delete_queue
        self.set_key_rule = self._limits.set_key_rule

    @renumbers
    async def open_queue(self, queue: QueueRef) -> QueueInfo:
        """The queue, made if it is new."""
        number = await self._backend.open_number(queue)
        info = await self.find_queue(queue)
        if info is None:
            await self._backend.verify_number(queue, number)
        return info or QueueInfo(queue, 0)

    async def find_queue(self, queue: QueueRef) -> QueueInfo | None:
        """The queue, if there is one."""
        rows = await self._backend.query(_QUEUE, queue.tenant, queue.name)
        return _info(queue.tenant, *rows[0]) if rows else None

    async def list_queues(self, tenant: str) -> list[QueueInfo]:
        """All queues of a tenant, by name."""
        found = [_listed(tenant, row) for row in await self._backend.query(_QUEUES, tenant)]
        # The database may sort by the rules of a language.
        return sorted(found, key=lambda info: info.queue.name)

    async def list_tenants(self) -> list[str]:
        """The tenants that have queues, by name; those alone that the role may see."""
        return sorted(
            tenant for (tenant,) in await self._backend.query("SELECT DISTINCT tenant FROM penstock.queue")
        )

    @renumbers
    async def declare(self, queue: QueueRef, declaration: Declaration) -> QueueInfo:
        """Compare with what is stored, and keep what was agreed; the row is held only if that differs."""
        wanted = check_declaration(declaration)
        known = await self.open_queue(queue)
        before = known.declaration
        if wanted.mode is known.mode and before and agreed(before, wanted, is_live=True) == before:
            return known
        await self._limits.declare(queue, wanted)
        return await self.open_queue(queue)

    @renumbers
    async def list_keys(self, queue: QueueRef, limit: int = 1_000) -> list[KeyInfo]:
        """Keys with waiting or running jobs or a rule, by name."""
        info = await self.find_queue(queue)
        if info is None or info.declaration is None or not info.mode.has_keys:
            return []
        return await self._limits.list_keys(queue, info.declaration, limit)

    @renumbers
    async def pause_queue(self, queue: QueueRef, pause: Pause | None, for_ms: int | None = None) -> None:
        """Stop claims, or let them go on."""
        words = (None, None) if pause is None else (stored(pause.reason), stored(pause.by))
        number = await self._backend.open_number(queue)
        if not await self._backend.query(
            _PAUSE, number, self._backend.newest_us, pause is not None, for_ms, *words
        ):
            await self._backend.verify_number(queue, number)
        self._backend.notify_ready(queue)


def _listed(tenant: str, row: Sequence[Any]) -> QueueInfo:
    """A queue of a list, which a damaged row does not end."""
    try:
        return _info(tenant, *row)
    except DamagedQueueError as error:
        return QueueInfo(QueueRef(tenant, row[0]), 0, fault=str(error))


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
    queue = QueueRef(tenant, name)
    return QueueInfo(
        queue,
        number,
        None if at is None else Pause(at, restored(reason), restored(by), until),
        read_declaration(queue, declaration),
        made,
        arrival_us,
        ClockStep(step_at, step_back_ms) if step_at else None,
    )
