"""The schedules of a tenant, as people and apps handle them: put, look, pause, run, remove."""

import asyncio
import secrets
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import Final
from zoneinfo import ZoneInfo

import msgspec

from penstock.core.cron.instants import next_runs
from penstock.core.cron.schedule import Schedule, check_schedule, decode_schedule, encode_schedule
from penstock.core.cron.spec import MAX_EVERY_MS, Cron, Every
from penstock.core.cron.words import describe
from penstock.core.errors import InvalidError, OptionError, QueueFullError, StoreVersionError
from penstock.core.ids import IdMaker
from penstock.core.job import DEFAULT_PRIORITY, NewJob, QueueRef
from penstock.core.outcomes import Refused
from penstock.stores.protocol import Store
from penstock.stores.values import StoredSchedule

MOST_RUNS: Final = 1_000
LOOKED_UP: Final = 500
PUT_AT_ONCE: Final = 32
"""Names of schedules that are looked up in one call."""
_UNKNOWN: Final = Every(MAX_EVERY_MS)
"""Stands where the time of a schedule cannot be read."""


class ScheduleInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule with where it stands. Times are in the zone of the schedule, UTC for an interval."""

    schedule: Schedule
    queue: str
    paused: bool
    next_at: datetime | None
    """When it fires next; None when never again."""
    last_at: datetime | None
    """The last instant that was dealt with."""
    fault: str | None = None
    """Why its record cannot be read here: then of `schedule` only the name is right, and it does not fire."""

    @property
    def name(self) -> str:
        """The schedule's name, unique in its tenant."""
        return self.schedule.name

    @property
    def task(self) -> str:
        """The task of its jobs."""
        return self.schedule.task

    @property
    def when(self) -> str:
        """When it fires, in words."""
        return describe(self.schedule.spec) if self.fault is None else "cannot be read"


class ScheduleRepository:
    """The schedules of one tenant in an open store. An unknown name is an OptionError."""

    def __init__(self, store: Store, tenant: str) -> None:
        self._store = store
        self._tenant = tenant
        self._ids = IdMaker(lambda: time.time_ns() // 1_000_000, secrets.randbits)

    async def show(self, name: str) -> ScheduleInfo:
        """One schedule."""
        return _info(await self._find(name))

    async def put(self, queue: str, schedule: Schedule) -> bool:
        """Keep a schedule, in place of the one of its name; False when it is there as it should be.

        Where only its job changed, it goes on from the instant it waits for; where its time changed, from
        now. What was paused stays paused.
        """
        return bool(await self.put_all([(queue, schedule)]))

    async def put_all(self, wanted: Sequence[tuple[str, Schedule]]) -> list[str]:
        """Keep many schedules, each with the name of its queue; the names of those that were not there so."""
        checked = [(queue, check_schedule(schedule)) for queue, schedule in wanted]
        put: list[str] = []
        for start in range(0, len(checked), LOOKED_UP):
            some = checked[start : start + LOOKED_UP]
            known: dict[str, list[StoredSchedule]] = {}
            for each in await self._store.schedules.list_schedules(
                self._tenant, [schedule.name for _, schedule in some]
            ):
                known.setdefault(each.name, []).append(each)
            for batch in _in_batches(some):
                # Together they wait for the disk once.
                done = await asyncio.gather(
                    *(self._put(queue, each, known.get(each.name, ())) for queue, each in batch),
                    return_exceptions=True,
                )
                for (_, schedule), is_news in zip(batch, done, strict=True):
                    if isinstance(is_news, BaseException):
                        raise is_news
                    if is_news:
                        put.append(schedule.name)
        return put

    async def _put(self, queue: str, schedule: Schedule, known: Sequence[StoredSchedule]) -> bool:
        ref, body = QueueRef(self._tenant, queue), encode_schedule(schedule)
        # Names are unique in a tenant: a schedule that moves to another queue must not fire in both.
        elsewhere = [each for each in known if each.queue != ref]
        old = next((each for each in known if each.queue == ref), None)
        if old is not None and old.body == body and not elsewhere:
            return False
        await self._check_key(ref, schedule)
        for each in elsewhere:
            await self._store.schedules.remove_schedule(each.queue, each.name)
        before = old or next(iter(elsewhere), None)
        if before is not None and _has_time_of(before, schedule):
            next_at = before.next_at
        else:
            next_at = await self._first(schedule)
        paused = before is not None and before.paused
        await self._store.schedules.put_schedule(
            StoredSchedule(ref, schedule.name, body, next_at, paused=paused)
        )
        return True

    async def pause(self, name: str) -> ScheduleInfo:
        """Fire no more until resumed."""
        stored = await self._find(name)
        await self._store.schedules.pause_schedule(stored.queue, name, True)
        return await self.show(name)

    async def resume(self, name: str) -> ScheduleInfo:
        """Fire again, from now on: whoever paused it did not want the instants in between."""
        stored = await self._find(name)
        if stored.paused:
            # Nobody fires a paused schedule, so nothing can come between the read and this.
            next_at = await self._first(_schedule(stored))
            await self._store.schedules.put_schedule(
                msgspec.structs.replace(stored, next_at=next_at, paused=False)
            )
        return await self.show(name)

    async def run_now(self, name: str) -> tuple[str, str]:
        """Enqueue its job at once, beside its instants; the queue and the job's id."""
        stored = await self._find(name)
        schedule = _schedule(stored)
        info = await self._store.queues.open_queue(stored.queue)
        new = NewJob(
            id=self._ids.make(info.number),
            nonce=secrets.token_hex(8),
            task=schedule.task,
            payload=schedule.payload,
            priority=schedule.priority,
            key=schedule.key,
            options=schedule.options,
            unique=schedule.unique,
            schedule=name,
        )
        (answer,) = await self._store.moves.enqueue(stored.queue, [new])
        if isinstance(answer, Refused):
            raise QueueFullError(f"queue {stored.queue} takes no job of schedule {name!r}: {answer.why}")
        return stored.queue.name, answer.id

    async def remove(self, name: str) -> ScheduleInfo:
        """Forget the schedule; jobs that it made stay. The schedule as it was."""
        stored = await self._find(name)
        await self._store.schedules.remove_schedule(stored.queue, name)
        return _info(stored)

    async def next_runs(self, name: str, count: int = 5) -> list[datetime]:
        """Its next instants, as if it were not paused."""
        if not 1 <= count <= MOST_RUNS:
            raise OptionError("count", count, f"a number from 1 to {MOST_RUNS}")
        stored = await self._find(name)
        schedule, now = _schedule(stored), await self._store.clock.now()
        start = max(now, (schedule.starts_at or 0) - 1)
        runs = next_runs(schedule.spec, start, count)
        return [
            each for each in runs if schedule.ends_at is None or each.timestamp() * 1000 <= schedule.ends_at
        ]

    async def list(self) -> list[ScheduleInfo]:
        """All schedules, by queue and name; also those whose record cannot be read, each with its `fault`."""
        return [_info(each) for each in await self._store.schedules.list_schedules(self._tenant)]

    async def named(self, name: str) -> Sequence[ScheduleInfo]:
        """The schedules of this name: none or one, unless two processes put it into two queues at once."""
        return [_info(each) for each in await self._store.schedules.list_schedules(self._tenant, [name])]

    async def _find(self, name: str) -> StoredSchedule:
        for each in await self._store.schedules.list_schedules(self._tenant, [name]):
            return each
        kept = [each.name for each in await self._store.schedules.list_schedules(self._tenant)]
        near = get_close_matches(name, kept, n=3)
        hint = f"; near it: {', '.join(near)}" if near else ""
        raise OptionError("schedule", name, f"the name of a schedule of tenant {self._tenant!r}{hint}")

    async def _first(self, schedule: Schedule) -> int | None:
        now = await self._store.clock.now()
        return schedule.due(now, now).next

    async def _check_key(self, queue: QueueRef, schedule: Schedule) -> None:
        info = await self._store.queues.find_queue(queue)
        if info is None or not info.mode.has_keys:
            return
        if schedule.key is None:
            raise OptionError("key", None, f"a concurrency key: queue {queue.name!r} is {info.mode}")
        if schedule.priority != DEFAULT_PRIORITY:
            wanted = f"none: in queue {queue.name!r}, which is {info.mode}, keys take turns"
            raise OptionError("priority", schedule.priority, wanted)


def _in_batches(wanted: Sequence[tuple[str, Schedule]]) -> Iterator[list[tuple[str, Schedule]]]:
    """A few at a time, in order, with no name twice in one batch."""
    batch: dict[str, tuple[str, Schedule]] = {}
    for queue, schedule in wanted:
        if len(batch) == PUT_AT_ONCE or schedule.name in batch:
            yield list(batch.values())
            batch = {}
        batch[schedule.name] = queue, schedule
    if batch:
        yield list(batch.values())


def _has_time_of(stored: StoredSchedule, schedule: Schedule) -> bool:
    try:
        old = decode_schedule(stored.body)
    except (msgspec.MsgspecError, KeyError):
        return False
    return (old.spec, old.starts_at, old.ends_at) == (schedule.spec, schedule.starts_at, schedule.ends_at)


def _schedule(stored: StoredSchedule) -> Schedule:
    try:
        return check_schedule(decode_schedule(stored.body))
    except (msgspec.MsgspecError, KeyError, InvalidError) as error:
        raise StoreVersionError(
            f"schedule {stored.name!r} of queue {stored.queue} cannot be read here: {error}; "
            "it was written by a newer Penstock, or by other hands"
        ) from error


def _info(stored: StoredSchedule) -> ScheduleInfo:
    fault: str | None = None
    try:
        schedule = _schedule(stored)
    except StoreVersionError as error:
        # One that cannot be read must not keep the others from being seen, nor itself from being removed.
        schedule = Schedule(name=stored.name, spec=_UNKNOWN, task="?", payload=b"{}")
        fault = str(error)
    spec = schedule.spec
    zone = ZoneInfo(spec.zone) if isinstance(spec, Cron) else UTC

    def at(instant: int | None) -> datetime | None:
        return None if instant is None or fault is not None else datetime.fromtimestamp(instant / 1000, zone)

    return ScheduleInfo(
        schedule=schedule,
        queue=stored.queue.name,
        paused=stored.paused,
        next_at=at(stored.next_at),
        last_at=at(stored.last_at),
        fault=fault,
    )
