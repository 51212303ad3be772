"""Schedules in few words, on a clock that only tests turn."""

from typing import Any

from penstock.core.cron.schedule import Schedule, encode_schedule
from penstock.core.cron.spec import Every
from penstock.core.job import QueueRef
from penstock.stores.memory import MemoryStore
from penstock.stores.protocol import Store
from penstock.stores.values import StoredSchedule

BERLIN_SUMMER = 1_792_803_600_000
"""24 October 2026, 03:00 in Berlin: the last night of summer time begins that evening."""


def frozen(at: int) -> MemoryStore:
    """A store in memory whose clock stands at this instant until it is turned."""
    return MemoryStore(clock_us=lambda: at * 1000)


def made(**fields: Any) -> Schedule:
    """A schedule of every minute."""
    usual: dict[str, Any] = {"name": "beat", "spec": Every.of(60), "task": "note", "payload": b'{"n":1}'}
    return Schedule(**(usual | fields))


async def put(store: Store, queue: QueueRef, schedule: Schedule, *, next_at: int | None) -> None:
    """Keep the schedule, waiting for this instant."""
    await store.schedules.put_schedule(
        StoredSchedule(queue, schedule.name, encode_schedule(schedule), next_at)
    )
