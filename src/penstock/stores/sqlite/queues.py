"""The queues in the file: their declarations, pauses and key rules."""

import sqlite3
from typing import Any, Final

from penstock.core.clocks import ClockStep
from penstock.core.errors import DamagedQueueError
from penstock.core.job import QueueRef
from penstock.core.limits import Declaration, KeyRule, Mode
from penstock.stores.rows import read_declaration, restored, stored
from penstock.stores.sqlite.backend import Backend
from penstock.stores.sqlite.codec import check_numbers, check_texts
from penstock.stores.sqlite.deletion import delete, sweep
from penstock.stores.sqlite.queue_transaction import QueueTransaction, open_queue
from penstock.stores.sqlite.tolerant import fetch
from penstock.stores.values import KeyInfo, Pause, QueueContents, QueueInfo, Topic

_INFO: Final = """
SELECT
    name, number, made, declaration, arrival_us, step_at, step_back_ms,
    paused_at, pause_reason, pause_by, paused_until
FROM queue
"""

_KEYS: Final = """
WITH q AS (SELECT n FROM queue WHERE tenant = :tenant AND name = :name),
used AS (
    SELECT key FROM job WHERE queue = (SELECT n FROM q) AND state = 'pending' AND key IS NOT NULL
    UNION SELECT key FROM job WHERE queue = (SELECT n FROM q) AND state = 'active' AND key IS NOT NULL
    UNION SELECT key FROM key_rule WHERE queue = (SELECT n FROM q)
)
SELECT
    used.key,
    (SELECT count(*) FROM job WHERE queue = (SELECT n FROM q) AND job.key = used.key AND state = 'pending'),
    (SELECT count(*) FROM job WHERE queue = (SELECT n FROM q) AND job.key = used.key AND state = 'active'),
    coalesce(iif(:dynamic, rule.max_active, NULL), :key_limit), coalesce(rule.weight, 1), lane.held_until
FROM used
LEFT JOIN key_rule AS rule ON rule.queue = (SELECT n FROM q) AND rule.key = used.key
LEFT JOIN lane ON lane.queue = (SELECT n FROM q) AND lane.key = used.key
ORDER BY used.key LIMIT :limit
"""


class SqliteQueues:
    """Opens, lists, declares, pauses and deletes queues."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def open_queue(self, queue: QueueRef) -> QueueInfo:
        """The queue, made if it is new."""
        known = await self.find_queue(queue)
        if known is not None:
            return known

        def make(connection: sqlite3.Connection) -> QueueInfo | None:
            open_queue(connection, queue)
            return read_queue(connection, queue)

        made = await self._backend.write(make)
        return made or QueueInfo(queue, 0)

    async def find_queue(self, queue: QueueRef) -> QueueInfo | None:
        """The queue, if there is one."""
        return await self._backend.read(lambda connection: read_queue(connection, queue))

    async def list_queues(self, tenant: str) -> list[QueueInfo]:
        """All queues of a tenant, by name."""

        def work(connection: sqlite3.Connection) -> list[QueueInfo]:
            rows = fetch(connection, f"{_INFO} WHERE tenant = ? ORDER BY name", (tenant,))
            return [_listed(tenant, row) for row in rows]

        return await self._backend.read(work)

    async def list_tenants(self) -> list[str]:
        """The tenants that have queues, by name."""
        found = await self._backend.read(
            lambda connection: connection.execute("SELECT DISTINCT tenant FROM queue").fetchall()
        )
        return sorted(tenant for (tenant,) in found)

    async def delete_queue(self, queue: QueueRef) -> QueueContents | None:
        """Delete a queue without jobs, schedules and relay entries; what keeps it, None where there is none.

        The rows it leaves behind are removed by this call; where it is cut off, by the next deletion.
        """
        contents = await self._backend.write(lambda connection: delete(connection, queue))
        if contents is not None and contents.is_empty:
            while await self._backend.write(sweep):
                pass
        return contents

    async def declare(self, queue: QueueRef, declaration: Declaration) -> QueueInfo:
        """Compare with what is stored, and keep what was agreed."""

        def move(transaction: QueueTransaction) -> QueueInfo | None:
            transaction.limits.declare(declaration)
            transaction.notifications.add(Topic.READY)
            return read_queue(transaction.connection, queue)

        return await self._backend.transact(queue, move) or QueueInfo(queue, 0)

    async def set_key_rule(self, queue: QueueRef, key: str, rule: KeyRule | None) -> None:
        """Change a key's own limit or weight."""

        def move(transaction: QueueTransaction) -> None:
            transaction.limits.set_key_rule(stored(key) or "", rule)
            transaction.notifications.add(Topic.READY)

        await self._backend.transact(queue, move)

    async def list_keys(self, queue: QueueRef, limit: int = 1_000) -> list[KeyInfo]:
        """Keys with waiting or running jobs or a rule, by name."""

        def work(connection: sqlite3.Connection) -> list[KeyInfo]:
            info = read_queue(connection, queue)
            if info is None or info.declaration is None or not info.mode.has_keys:
                return []
            params = {**named(queue), "key_limit": info.declaration.key_limit, "limit": limit}
            params["dynamic"] = info.mode is Mode.DYNAMIC
            return [KeyInfo(restored(key) or "", *rest) for key, *rest in connection.execute(_KEYS, params)]

        return await self._backend.read(work)

    async def pause_queue(self, queue: QueueRef, pause: Pause | None, for_ms: int | None = None) -> None:
        """Stop claims, or let them go on."""

        def move(transaction: QueueTransaction) -> None:
            transaction.pause(pause, None if for_ms is None else transaction.now + for_ms)
            transaction.notifications.add(Topic.READY)

        await self._backend.transact(queue, move)


def read_queue(connection: sqlite3.Connection, queue: QueueRef) -> QueueInfo | None:
    """The queue, if there is one."""
    rows = fetch(connection, f"{_INFO} WHERE tenant = :tenant AND name = :name", named(queue))
    return _info(queue.tenant, *rows[0]) if rows else None


def named(queue: QueueRef) -> dict[str, Any]:
    """The parameters that name a queue."""
    return {"tenant": queue.tenant, "name": queue.name}


def _listed(tenant: str, row: tuple[Any, ...]) -> QueueInfo:
    """A queue of a list, which a damaged row does not end."""
    if not isinstance(row[0], str):
        name = row[0].decode(errors="backslashreplace") if isinstance(row[0], bytes) else str(row[0])
        return QueueInfo(QueueRef(tenant, name), 0, fault=f"a queue has {row[0]!r} for its name")
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
    step_at: int | None,
    step_back_ms: int,
    paused_at: int | None,
    pause_reason: str | None,
    pause_by: str | None,
    paused_until: int | None,
) -> QueueInfo:
    queue = QueueRef(tenant, name)
    check_texts(queue, (made, pause_reason, pause_by))
    check_numbers(queue, (number, arrival_us, step_at, step_back_ms, paused_at, paused_until))
    return QueueInfo(
        queue,
        number,
        None if paused_at is None else Pause(paused_at, pause_reason, pause_by, paused_until),
        read_declaration(queue, declaration),
        made,
        arrival_us,
        None if step_at is None else ClockStep(step_at, step_back_ms),
    )
