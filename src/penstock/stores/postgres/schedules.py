"""Schedules in the database: each with the queue of its jobs."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

from penstock.core.job import QueueRef
from penstock.stores.absent import answers_absent
from penstock.stores.bounds import SCHEDULE_LIMIT
from penstock.stores.postgres.backend import Backend
from penstock.stores.postgres.enqueue import Overtaken, PostgresEnqueue
from penstock.stores.postgres.queue_transaction import QueueTransaction
from penstock.stores.postgres.renumbering import renumbers
from penstock.stores.values import Firing, StoredSchedule, Topic

_PUT: Final = """
INSERT INTO penstock.schedule (queue, name, body, next_at, paused)
SELECT mine.n, $2, $3, $4::bigint, $5::boolean
FROM (SELECT queue.n FROM penstock.queue WHERE queue.n = $1 FOR KEY SHARE) AS mine
ON CONFLICT (queue, name) DO UPDATE SET
    body = excluded.body, next_at = excluded.next_at, paused = excluded.paused
RETURNING 1
"""
_REMOVE: Final = "DELETE FROM penstock.schedule WHERE queue = $1 AND name = $2 RETURNING 1"
_PAUSE: Final = """
UPDATE penstock.schedule SET paused = $3::boolean WHERE queue = $1 AND name = $2 RETURNING 1
"""
_ALL: Final = """
SELECT queue.name, schedule.name, schedule.body, schedule.next_at, schedule.last_at, schedule.paused
FROM penstock.schedule
JOIN penstock.queue ON queue.n = schedule.queue
WHERE queue.tenant = $1
"""
_NAMED: Final = """
SELECT queue.name, mine.name, mine.body, mine.next_at, mine.last_at, mine.paused
FROM penstock.queue
CROSS JOIN unnest($2::text[]) AS wanted (name)
CROSS JOIN LATERAL (
    SELECT * FROM penstock.schedule WHERE schedule.queue = queue.n AND schedule.name = wanted.name LIMIT 1
) AS mine
WHERE queue.tenant = $1
"""
_DUE: Final = """
SELECT $4::text, name, body, next_at, last_at, paused
FROM penstock.schedule
WHERE queue = $1 AND NOT paused AND next_at <= penstock.now_us($2::bigint) / 1000
ORDER BY next_at, name COLLATE "C"
LIMIT $3::bigint
"""
_FIRE: Final = """
UPDATE penstock.schedule SET next_at = $4::bigint, last_at = $5::bigint
WHERE queue = $1 AND name = $2 AND next_at = $3::bigint AND NOT paused
RETURNING 1
"""


class PostgresSchedules:
    """The part `Schedules`: schedules, and the instants that they fire."""

    def __init__(self, backend: Backend, enqueue: PostgresEnqueue) -> None:
        self._backend = backend
        self._enqueue = enqueue

    async def put_schedule(self, schedule: StoredSchedule) -> None:
        """Keep a schedule; one of that name is replaced, and keeps what it fired last."""
        await self._put(schedule.queue, schedule)
        # Its first instant may come sooner than anything that schedulers wait for.
        self._backend.notifier.notify(schedule.queue, {Topic.READY})

    @renumbers
    async def _put(self, queue: QueueRef, schedule: StoredSchedule) -> None:
        number = await self._backend.open_number(queue)
        columns = (schedule.name, schedule.body.decode(), schedule.next_at, schedule.paused)
        if not await self._backend.query(_PUT, number, *columns):
            await self._backend.verify_number(queue, number)

    @answers_absent
    @renumbers
    async def remove_schedule(self, queue: QueueRef, name: str) -> bool:
        """Take a schedule away; False when there was none."""
        return bool(await self._backend.change_queue(queue, _REMOVE, name))

    @answers_absent
    @renumbers
    async def pause_schedule(self, queue: QueueRef, name: str, paused: bool) -> bool:
        """Stop a schedule for now, or let it go on; False when there is none."""
        return bool(await self._backend.change_queue(queue, _PAUSE, name, paused))

    async def list_schedules(self, tenant: str, names: Sequence[str] | None = None) -> list[StoredSchedule]:
        """The schedules of a tenant, by queue and name: those of these names, or all."""
        if names is None:
            rows = await self._backend.query(_ALL, tenant)
        else:
            rows = await self._backend.query(_NAMED, tenant, list(dict.fromkeys(names)))
        found = [_schedule(tenant, row) for row in rows]
        # The database may sort by the rules of a language.
        return sorted(found, key=lambda each: (each.queue.name, each.name))

    @renumbers
    async def due_schedules(self, queue: QueueRef, limit: int = SCHEDULE_LIMIT) -> list[StoredSchedule]:
        """Schedules whose next instant has come, oldest first."""
        rows = await self._backend.read_queue(queue, _DUE, self._backend.newest_us, limit, queue.name)
        return [_schedule(queue.tenant, row) for row in rows]

    @answers_absent
    @renumbers
    async def fire(self, queue: QueueRef, firing: Firing) -> bool:
        """Take in the jobs of an instant and move the schedule on, if that is still its next instant."""
        is_fired = False
        # A call that is overtaken leaves the schedule due.
        with suppress(Overtaken):
            async with self._backend.queue_transaction(
                await self._backend.require_number(queue)
            ) as transaction:
                is_fired = await self._fire(transaction, firing)
        if is_fired:
            self._backend.notifier.notify(queue, {Topic.READY})
        return is_fired

    async def _fire(self, transaction: QueueTransaction, firing: Firing) -> bool:
        if transaction.declared.mode.has_keys and any(new.key is None for new in firing.jobs):
            return False
        if firing.jobs and await self._enqueue.space(transaction, len(firing.jobs)) < len(firing.jobs):
            return False
        instants = (firing.at, firing.next_at, firing.last_at)
        if not await self._backend.query(
            _FIRE, transaction.number, firing.name, *instants, on=transaction.connection
        ):
            return False
        await self._enqueue.admit(transaction, firing.jobs)
        return True


def _schedule(tenant: str, row: tuple[Any, ...]) -> StoredSchedule:
    queue, name, body, next_at, last_at, paused = row
    return StoredSchedule(QueueRef(tenant, queue), name, body.encode(), next_at, last_at, paused)
