"""Schedules in the memory store: each with the queue of its jobs."""

from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from penstock.core.job import QueueRef
from penstock.stores.absent import answers_absent
from penstock.stores.bounds import SCHEDULE_LIMIT
from penstock.stores.memory.backend import Backend
from penstock.stores.memory.enqueue import MemoryEnqueue
from penstock.stores.values import Firing, StoredSchedule, Topic


class MemorySchedules:
    """Schedules, and the instants that they fire."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._enqueue = MemoryEnqueue(backend)

    async def put_schedule(self, schedule: StoredSchedule) -> None:
        with self._backend.lock:
            schedules = self._backend.ledger(schedule.queue).schedules
            old = schedules.get(schedule.name)
            schedules[schedule.name] = replace(schedule, last_at=None if old is None else old.last_at)
        # Its first instant may come sooner than anything that is waited for.
        self._backend.notifier.notify(schedule.queue, Topic.READY)

    @answers_absent
    async def remove_schedule(self, queue: QueueRef, name: str) -> bool:
        with self._backend.lock:
            return self._backend.existing(queue).schedules.pop(name, None) is not None

    @answers_absent
    async def pause_schedule(self, queue: QueueRef, name: str, paused: bool) -> bool:
        with self._backend.lock:
            schedules = self._backend.existing(queue).schedules
            if name not in schedules:
                return False
            schedules[name] = replace(schedules[name], paused=paused)
            return True

    async def list_schedules(self, tenant: str, names: Sequence[str] | None = None) -> list[StoredSchedule]:
        with self._backend.lock:
            schedules = [
                schedule
                for ref, ledger in self._backend.ledgers.items()
                if ref.tenant == tenant
                for schedule in _named(ledger.schedules, names)
            ]
            return sorted(schedules, key=lambda schedule: (schedule.queue.name, schedule.name))

    async def due_schedules(self, queue: QueueRef, limit: int = SCHEDULE_LIMIT) -> list[StoredSchedule]:
        with self._backend.lock:
            ledger, now = self._backend.ledgers.get(queue), self._backend.now()
            schedules = [] if ledger is None else list(ledger.schedules.values())
            due = [
                (schedule.next_at, schedule.name, schedule)
                for schedule in schedules
                if schedule.next_at is not None and schedule.next_at <= now and not schedule.paused
            ]
            return [schedule for _, _, schedule in sorted(due, key=lambda each: each[:2])[:limit]]

    @answers_absent
    async def fire(self, queue: QueueRef, firing: Firing) -> bool:
        with self._backend.lock:
            ledger, now = self._backend.existing(queue), self._backend.now()
            schedule = ledger.schedules.get(firing.name)
            if schedule is None or schedule.paused or schedule.next_at != firing.at:
                return False
            if firing.jobs and ledger.free_places < len(firing.jobs):
                return False
            if ledger.declared.mode.has_keys and any(new.key is None for new in firing.jobs):
                return False
            for new in firing.jobs:
                self._enqueue.enqueue(ledger, new, now)
            self._backend.refresh(ledger)
            ledger.schedules[firing.name] = replace(schedule, next_at=firing.next_at, last_at=firing.last_at)
        self._backend.notifier.notify(queue, Topic.READY)
        return True


def _named(schedules: Mapping[str, StoredSchedule], names: Sequence[str] | None) -> Iterable[StoredSchedule]:
    return (
        schedules.values() if names is None else [schedules[name] for name in {*names} if name in schedules]
    )
