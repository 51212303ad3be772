"""Schedules, each with the queue of its jobs; still to come on this store."""

from penstock.core.job import QueueRef
from penstock.stores.postgres.later import refuse
from penstock.stores.postgres.room import Room
from penstock.stores.protocol import SCHEDULE_LIMIT, Firing, StoredSchedule


class PostgresSchedules(Room):
    """Schedules."""

    async def put_schedule(self, schedule: StoredSchedule) -> None:
        """Keep a schedule."""
        refuse("schedules")

    async def remove_schedule(self, queue: QueueRef, name: str) -> bool:
        """There is none."""
        return False

    async def pause_schedule(self, queue: QueueRef, name: str, paused: bool) -> bool:
        """There is none."""
        return False

    async def schedules(self, tenant: str) -> list[StoredSchedule]:
        """All schedules of a tenant."""
        return []

    async def due_schedules(self, queue: QueueRef, limit: int = SCHEDULE_LIMIT) -> list[StoredSchedule]:
        """Schedules whose next instant has come."""
        return []

    async def fire(self, queue: QueueRef, firing: Firing) -> bool:
        """There is none."""
        return False
