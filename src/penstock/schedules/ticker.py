"""Fires the schedules of a queue: each instant makes its job once, however many processes do this."""

import hashlib
import logging
import math
import secrets
from collections.abc import Sequence
from typing import Final, Protocol

from penstock.core.clocks import STEP_MS
from penstock.core.cron.schedule import Schedule, decode_schedule
from penstock.core.job import NewJob, QueueRef
from penstock.core.limits import MAX_COUNT
from penstock.core.states import WAITING
from penstock.stores.bounds import CHUNK_BYTES, SCHEDULE_LIMIT
from penstock.stores.protocol import Store
from penstock.stores.values import Firing, StoredSchedule

_LOGGER: Final = logging.getLogger("penstock.schedules")
FIRE_LIMIT: Final = 100
"""Jobs in one firing at most; the instants that are left follow in the next."""
MAX_ID: Final = 128
ROUNDS: Final = 20
"""Batches in a row; then others have their turn."""
AGAIN: Final = 1.0
"""Seconds until a schedule is met again that is due and cannot be fired."""


class Admission(Protocol):
    """Who else has a say in how many jobs of schedules a queue takes in, such as the quotas of a service."""

    async def space(self, queue: QueueRef) -> int | None:
        """How many it takes in now; None without a bound."""
        ...

    async def fired(self, queue: QueueRef, jobs: int) -> None:
        """So many were taken in."""
        ...


class Ticker:
    """Fires what is due, and knows when the next instant comes.

    The schedules' next instants are read now and then (`attend` with `look`) and followed in between, so that
    waiting for an instant costs nothing.
    """

    def __init__(self, store: Store, queue: QueueRef, admission: Admission | None = None) -> None:
        self._store = store
        self._queue = queue
        self._admission = admission
        self._coming: dict[str, int] = {}
        self._stuck = 0
        self._space = MAX_COUNT
        self._is_full = False
        self._unreadable: set[str] = set()
        self._examined_at: int | None = None

    async def attend(self, *, look: bool = True) -> float:
        """Fire what is due; the seconds until something will be, infinite when nothing."""
        if look:
            await self._look()
        if not self._coming:
            return math.inf
        now = await self._store.clock.now()
        if min(self._coming.values()) <= now:
            more = False
            for _ in range(ROUNDS):
                more = await self.tick()
                if not more:
                    break
            if more:
                return 0.0
            now = await self._store.clock.now()
            if min(self._coming.values(), default=now + 1) <= now:
                # What was due before is not any more, or cannot be: somebody else was there first.
                await self._look()
                return self._seconds(now, at_least=AGAIN)
        return self._seconds(now)

    @property
    def is_stuck(self) -> bool:
        """True when the last batch left something due that could not be fired."""
        return self._stuck > 0

    async def tick(self) -> bool:
        """Fire one batch; True when there may be more."""
        # Those that could not be fired would stand at the front for ever, and in the way of the others.
        limit = SCHEDULE_LIMIT + self._stuck
        await self._follow_clock()
        due = await self._store.schedules.due_schedules(self._queue, limit)
        if not due:
            self._stuck = 0
            return False
        now = await self._store.clock.now()
        self._space = await self._space_left()
        was_full, self._is_full = self._is_full, False
        fired, left = 0, False
        for stored in due:
            outcome = await self._fire(stored, now)
            fired += outcome is not None
            left = left or outcome is True
        if self._is_full and not was_full:
            _LOGGER.warning("queue %s is full: schedules that are due wait", self._queue, extra=self._about)
        self._stuck = len(due) - fired
        return fired > 0 and (left or len(due) >= limit)

    async def _follow_clock(self) -> None:
        """Let schedules go on by the new time, once after the clock was set back."""
        now, before = await self._store.clock.now(), self._examined_at
        if before is None:
            info = await self._store.queues.find_queue(self._queue)
            step = None if info is None else info.clock_step
            is_stepped = step is not None and step.holds_back(now)
        else:
            is_stepped = before - now > STEP_MS
        self._examined_at = now if before is None or is_stepped else max(before, now)
        if is_stepped:
            for stored in await self._store.schedules.list_schedules(self._queue.tenant):
                if stored.queue == self._queue and stored.next_at is not None and not stored.paused:
                    await self._restart(stored, stored.next_at, now)

    async def _restart(self, stored: StoredSchedule, at: int, now: int) -> None:
        if at <= now:
            return
        try:
            next_at = decode_schedule(stored.body).restarted(at, now)
        except Exception as error:  # noqa: BLE001 (whatever is wrong with one schedule, the others fire)
            self._cannot_read(stored.name, error)
            return
        if next_at == at:
            return
        if await self._store.schedules.fire(
            self._queue, Firing(stored.name, at, (), next_at, stored.last_at)
        ):
            self._note(stored.name, next_at)
            told = "schedule %s goes on by the new time: the store's clock was set back"
            _LOGGER.warning(told, stored.name, extra=self._about)

    async def _fire(self, stored: StoredSchedule, now: int) -> bool | None:
        """Fire one schedule: True when it has more instants now, None when nothing was done."""
        at = stored.next_at
        if at is None or at > now:
            return None
        try:
            schedule = decode_schedule(stored.body)
            # Everything before the next instant is dealt with, so the last one looked at is just before it.
            found = schedule.due(at - 1, now)
        except Exception as error:  # noqa: BLE001 (whatever is wrong with one schedule, the others fire)
            self._cannot_read(stored.name, error)
            return None
        instants = _bounded(found.now, schedule)
        if len(instants) > self._space:
            self._is_full = True
            instants = instants[: self._space]
            if not instants:
                return None
        left = found.now[len(instants) :]
        firing = Firing(
            stored.name,
            at,
            tuple(_job(schedule, instant) for instant in instants),
            left[0] if left else found.next,
            instants[-1] if instants else at if stored.last_at is None else stored.last_at,
        )
        is_ours = await self._store.schedules.fire(self._queue, firing)
        self._note(stored.name, left[0] if left and is_ours else found.next)
        if not is_ours:
            return None
        self._space -= len(instants)
        if self._admission is not None and instants:
            await self._admission.fired(self._queue, len(instants))
        if not instants or instants[0] > at:
            _LOGGER.info("schedule %s skips what it missed", stored.name, extra=self._about)
        _LOGGER.debug("schedule %s fired %d jobs", stored.name, len(instants), extra=self._about)
        return bool(left)

    async def _space_left(self) -> int:
        """How many more jobs the queue takes in."""
        bound = None if self._admission is None else await self._admission.space(self._queue)
        declared = await self._declared_space()
        return declared if bound is None else min(declared, bound)

    async def _declared_space(self) -> int:
        info = await self._store.queues.find_queue(self._queue)
        if info is None or info.declaration is None or info.declaration.max_length is None:
            return MAX_COUNT
        counts = await self._store.reads.counts(self._queue)
        return max(0, info.declaration.max_length - sum(counts[state] for state in WAITING))

    async def _look(self) -> None:
        kept = await self._store.schedules.list_schedules(self._queue.tenant)
        self._coming = {
            each.name: each.next_at
            for each in kept
            if each.queue == self._queue
            and each.next_at is not None
            and not each.paused
            and each.name not in self._unreadable
        }

    def _note(self, name: str, next_at: int | None) -> None:
        if next_at is None:
            self._coming.pop(name, None)
        else:
            self._coming[name] = next_at

    def _seconds(self, now: int, at_least: float = 0.0) -> float:
        if not self._coming:
            return math.inf
        return max(at_least, (min(self._coming.values()) - now) / 1000)

    def _cannot_read(self, name: str, error: Exception) -> None:
        self._coming.pop(name, None)
        if name not in self._unreadable:
            self._unreadable.add(name)
            _LOGGER.error(
                "schedule %s cannot be read and does not fire: %s: %s",
                name,
                type(error).__name__,
                error,
                extra=self._about,
            )

    @property
    def _about(self) -> dict[str, object]:
        return {"tenant": self._queue.tenant, "queue": self._queue.name}


def job_id(schedule: str, instant: int) -> str:
    """The id of an instant's job: the same in every process, and no other instant's.

    >>> job_id("nightly", 1_700_000_000_000)
    'nightly.1700000000000'
    """
    told = f"{schedule}.{instant}"
    if len(told) <= MAX_ID:
        return told
    digest = hashlib.blake2b(schedule.encode(), digest_size=16).hexdigest()
    return f"{schedule[:70]}-{digest}.{instant}"


def _bounded(instants: Sequence[int], schedule: Schedule) -> Sequence[int]:
    """As many as one firing may carry, and at least one."""
    by_size = max(1, CHUNK_BYTES // max(1, len(schedule.payload)))
    return instants[: min(FIRE_LIMIT, by_size)]


def _job(schedule: Schedule, instant: int) -> NewJob:
    return NewJob(
        id=job_id(schedule.name, instant),
        nonce=secrets.token_hex(8),
        task=schedule.task,
        payload=schedule.payload,
        priority=schedule.priority,
        key=schedule.key,
        options=schedule.options,
        unique=schedule.unique,
        schedule=schedule.name,
        instant=instant,
    )
