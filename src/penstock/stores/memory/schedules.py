"""Schedules in the memory store: each with the queue of its jobs."""

from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from penstock.core.job import QueueRef
from penstock.stores.absent import answers_absent
from penstock.stores.bounds import SCHEDULE_LIMIT
from penstock.stores.memory.enqueue import MemoryEnqueue
from penstock.stores.values import Firing, StoredSchedule, Topic


class MemorySchedules(MemoryEnqueue):
    """Schedules, and the instants that they fire."""

    async def put_schedule(self, schedule: StoredSchedule) -> None:
        with self._lock:
            kept = self._ledger(schedule.queue).schedules
            old = kept.get(schedule.name)
            kept[schedule.name] = replace(schedule, last_at=None if old is None else old.last_at)
        # Its first instant may come sooner than anything that is waited for.
        self._belfry.ring(schedule.queue, Topic.READY)

    @answers_absent
    async def remove_schedule(self, queue: QueueRef, name: str) -> bool:
        with self._lock:
            return self._existing(queue).schedules.pop(name, None) is not None

    @answers_absent
    async def pause_schedule(self, queue: QueueRef, name: str, paused: bool) -> bool:
        with self._lock:
            kept = self._existing(queue).schedules
            if name not in kept:
                return False
            kept[name] = replace(kept[name], paused=paused)
            return True

    async def schedules(self, tenant: str, names: Sequence[str] | None = None) -> list[StoredSchedule]:
        with self._lock:
            kept = [
                schedule
                for ref, ledger in self._ledgers.items()
                if ref.tenant == tenant
                for schedule in _named(ledger.schedules, names)
            ]
            return sorted(kept, key=lambda schedule: (schedule.queue.name, schedule.name))

    async def due_schedules(self, queue: QueueRef, limit: int = SCHEDULE_LIMIT) -> list[StoredSchedule]:
        with self._lock:
            ledger, now = self._ledgers.get(queue), self._now()
            kept = [] if ledger is None else list(ledger.schedules.values())
            due = [
                (schedule.next_at, schedule.name, schedule)
                for schedule in kept
                if schedule.next_at is not None and schedule.next_at <= now and not schedule.paused
            ]
            return [schedule for _, _, schedule in sorted(due, key=lambda each: each[:2])[:limit]]

    @answers_absent
    async def fire(self, queue: QueueRef, firing: Firing) -> bool:
        with self._lock:
            ledger, now = self._existing(queue), self._now()
            schedule = ledger.schedules.get(firing.name)
            if schedule is None or schedule.paused or schedule.next_at != firing.at:
                return False
            if firing.jobs and ledger.room < len(firing.jobs):
                return False
            if ledger.declared.mode.has_keys and any(new.key is None for new in firing.jobs):
                return False
            for new in firing.jobs:
                self._enqueue(ledger, new, now)
            self._refresh(ledger)
            ledger.schedules[firing.name] = replace(schedule, next_at=firing.next_at, last_at=firing.last_at)
        self._belfry.ring(queue, Topic.READY)
        return True


def _named(kept: Mapping[str, StoredSchedule], names: Sequence[str] | None) -> Iterable[StoredSchedule]:
    return kept.values() if names is None else [kept[name] for name in {*names} if name in kept]
