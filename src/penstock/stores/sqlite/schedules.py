"""Schedules in the file: each with the queue of its jobs."""

import json
import sqlite3
from collections.abc import Sequence
from typing import Any, Final

from penstock.core.job import QueueRef
from penstock.stores.absent import answers_absent
from penstock.stores.bounds import SCHEDULE_LIMIT
from penstock.stores.sqlite.backend import Backend
from penstock.stores.sqlite.clock import read_now
from penstock.stores.sqlite.enqueue import enqueue
from penstock.stores.sqlite.queue_transaction import QueueTransaction
from penstock.stores.values import Firing, StoredSchedule, Topic

_SELECT: Final = """
SELECT queue.name, schedule.name, schedule.body, next_at, last_at, paused
FROM schedule JOIN queue ON schedule.queue = queue.n
WHERE queue.tenant = :tenant
"""


class SqliteSchedules:
    """Schedules, and the instants that they fire."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def put_schedule(self, schedule: StoredSchedule) -> None:
        """Keep a schedule; one of that name is replaced, and keeps what it fired last."""

        def move(transaction: QueueTransaction) -> None:
            transaction.connection.execute(
                "INSERT INTO schedule (queue, name, body, next_at, paused) VALUES (?, ?, ?, ?, ?) "
                "ON CONFLICT (queue, name) DO UPDATE SET body = excluded.body, next_at = excluded.next_at, "
                "paused = excluded.paused",
                (
                    transaction.number,
                    schedule.name,
                    schedule.body.decode(),
                    schedule.next_at,
                    schedule.paused,
                ),
            )
            # Its first instant may come sooner than anything that is waited for.
            transaction.notifications.add(Topic.READY)

        await self._backend.transact(schedule.queue, move)

    @answers_absent
    async def remove_schedule(self, queue: QueueRef, name: str) -> bool:
        """Take a schedule away; False when there was none."""
        return await self._change(queue, "DELETE FROM schedule WHERE queue = ? AND name = ?", name)

    @answers_absent
    async def pause_schedule(self, queue: QueueRef, name: str, paused: bool) -> bool:
        """Stop a schedule for now, or let it go on; False when there is none."""
        value = 1 if paused else 0
        return await self._change(
            queue,
            f"UPDATE schedule SET paused = {value} WHERE queue = ? AND name = ?",  # noqa: S608 (a number)
            name,
        )

    async def list_schedules(self, tenant: str, names: Sequence[str] | None = None) -> list[StoredSchedule]:
        """The schedules of a tenant, by queue and name: those of these names, or all."""
        among = "" if names is None else "AND schedule.name IN (SELECT value FROM json_each(:names))"

        def work(connection: sqlite3.Connection) -> list[StoredSchedule]:
            rows = connection.execute(
                f"{_SELECT} {among} ORDER BY queue.name, schedule.name",
                {"tenant": tenant, "names": json.dumps(list(names or ()))},
            )
            return [_schedule(tenant, row) for row in rows]

        return await self._backend.read(work)

    async def due_schedules(self, queue: QueueRef, limit: int = SCHEDULE_LIMIT) -> list[StoredSchedule]:
        """Schedules whose next instant has come, oldest first."""

        def work(connection: sqlite3.Connection) -> list[StoredSchedule]:
            rows = connection.execute(
                f"{_SELECT} AND queue.name = :name AND NOT paused AND next_at <= :now "
                "ORDER BY next_at, schedule.name LIMIT :limit",
                {
                    "tenant": queue.tenant,
                    "name": queue.name,
                    "now": read_now(connection, queue),
                    "limit": limit,
                },
            )
            return [_schedule(queue.tenant, row) for row in rows]

        return await self._backend.read(work)

    @answers_absent
    async def fire(self, queue: QueueRef, firing: Firing) -> bool:
        """Take in the jobs of an instant and move the schedule on, if that is still its next instant."""

        def move(transaction: QueueTransaction) -> bool:
            if firing.jobs and transaction.limits.free_places() < len(firing.jobs):
                return False
            if transaction.limits.declared.mode.has_keys and any(new.key is None for new in firing.jobs):
                return False
            moved = transaction.connection.execute(
                "UPDATE schedule SET next_at = ?, last_at = ? "
                "WHERE queue = ? AND name = ? AND next_at = ? AND NOT paused",
                (firing.next_at, firing.last_at, transaction.number, firing.name, firing.at),
            ).rowcount
            if moved:
                enqueue(transaction, list(firing.jobs))
            return bool(moved)

        return await self._backend.transact(queue, move, creates=False)

    async def _change(self, queue: QueueRef, sql: str, name: str) -> bool:
        return await self._backend.transact(
            queue,
            lambda transaction: transaction.connection.execute(sql, (transaction.number, name)).rowcount > 0,
            creates=False,
        )


def _schedule(tenant: str, row: tuple[Any, ...]) -> StoredSchedule:
    queue, name, body, next_at, last_at, paused = row
    return StoredSchedule(QueueRef(tenant, queue), name, body.encode(), next_at, last_at, bool(paused))
