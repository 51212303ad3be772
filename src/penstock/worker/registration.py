"""A worker process in the store's registry: kept under a lease, and asked which tasks other workers know."""

import asyncio
import logging
import os
import secrets
import socket
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from importlib.metadata import version
from typing import ClassVar, Final, Protocol

import msgspec

from penstock.core.errors import InvalidError, PenstockError, StoreError
from penstock.core.job import QueueRef
from penstock.core.repeated_failures import RepeatedFailures
from penstock.stores.protocol import HasHealth, HasNotifier, HasWorkers
from penstock.stores.values import OrderKind, WorkerEntry, WorkerOrder, WorkerState
from penstock.worker.clock import Clock, boottime
from penstock.worker.control import ControlListener
from penstock.worker.status import (
    MOST_JOBS,
    LoopLag,
    QueueStatus,
    busy_slots,
    done_by,
    resident_memory,
    state_of,
)

_LOGGER: Final = logging.getLogger("penstock.worker")
LEASE: Final = 30.0
"""Seconds after which a worker that does not renew its entry counts as gone."""
KNOWN_SECONDS: Final = 2.0
"""How long what was read of the registry is used."""
READ: Final = 2.0
"""Seconds that a look into the registry may take: the job that is asked about is under a lease."""
NAMED_BYTES: Final = 20_000
"""Bytes that the names of queues, and those of tasks, may have in an entry."""
LEAVE: Final = 2.0
"""Seconds that the removal of the entry may take when the worker ends."""


NAMED: Final = 20
"""Queues and tasks that the log names when a worker starts; of the others it tells the number."""


class _Backend(HasWorkers, HasHealth, HasNotifier, Protocol):
    """What is needed of a store."""

    is_server: ClassVar[bool]


class Registration:
    """The entry of one process, shared by its workers; there while any of them runs."""

    def __init__(
        self,
        store: _Backend,
        tenant: str,
        name: str,
        queues: Mapping[str, int],
        tasks: Sequence[str],
        *,
        app_version: str | None = None,
        clock: Clock = boottime,
    ) -> None:
        self._store = store
        self.clock = clock
        self._tenant = tenant
        named_queues, named_tasks = _first(queues), _first(tasks)
        self._entry = WorkerEntry(
            name=name,
            host=socket.gethostname(),
            pid=os.getpid(),
            version=version("penstock"),
            queues={queue: queues[queue] for queue in named_queues},
            tasks=tuple(named_tasks),
            more_queues=len(queues) - len(named_queues),
            more_tasks=len(tasks) - len(named_tasks),
            instance=secrets.token_hex(8),
            app_version=app_version,
            slots=sum(queues.values()),
        )
        self._statuses: set[QueueStatus] = set()
        self._ended = 0
        self._started_at = clock()
        self._changed = asyncio.Event()
        self._is_stopping = False
        self._measuring: asyncio.Task[None] | None = None
        self._listening: asyncio.Task[None] | None = None
        self._obeyed: WorkerOrder | None = None
        self.stop: Callable[[bool], None] = lambda now: None
        """Ends the process's workers: after their jobs, or now. Called where an order says so."""
        self.lag = LoopLag(clock)
        self.polled_at: float | None = None
        """When the process last asked the store for jobs, on the clock of the worker."""
        self._users = 0
        self._renewing: asyncio.Task[None] | None = None
        self._live: list[tuple[WorkerEntry, frozenset[str]]] = []
        self._read_at = float("-inf")
        self._reading = asyncio.Lock()
        self._reasons = RepeatedFailures()

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Registered for the time of the block; from the first of several blocks to the last."""
        self._users += 1
        is_first = self._renewing is None
        if self._renewing is None:
            self._renewing = asyncio.create_task(self._renew())
            self.lag.beat_at = self.clock()
            self._measuring = asyncio.create_task(self.lag.measure())
            self._listening = asyncio.create_task(self._listen())
        try:
            if is_first:
                await self._announce()
            yield
        finally:
            self._users -= 1
            if not self._users:
                await self._leave()

    @contextmanager
    def serving(self, status: QueueStatus) -> Iterator[None]:
        """Show this queue in the entry for the time of the block."""
        self._statuses.add(status)
        try:
            yield
        finally:
            self._statuses.discard(status)
            self._ended += status.slots.usage().ended

    @property
    def ended(self) -> int:
        """How many executions have ended in this process."""
        return self._ended + sum(each.slots.usage().ended for each in self.queues)

    @property
    def is_held(self) -> bool:
        """True while any worker of the process runs."""
        return self._measuring is not None

    @property
    def state(self) -> WorkerState:
        """What the process is doing. From any thread."""
        return state_of(self.queues, is_stopping=self._is_stopping)

    @property
    def slots(self) -> int:
        """The slots of all queues."""
        return self._entry.slots

    @property
    def queues(self) -> list[QueueStatus]:
        """The queues that are served just now. From any thread."""
        return list(self._statuses.copy())

    def stopping(self) -> None:
        """Show at once that the process claims no more. On the event loop."""
        if not self._is_stopping:
            self._is_stopping = True
            self._changed.set()

    def polled(self) -> None:
        """The process asks the store for jobs, for all of its queues."""
        self.polled_at = self.clock()

    def entry(self) -> WorkerEntry:
        """The entry as it is now."""
        now, statuses = self.clock(), self.queues
        jobs = sorted((job for each in statuses for job in each.running()), key=lambda job: job.since)
        polls = [each.polled_at for each in statuses if each.polled_at is not None]
        if self.polled_at is not None:
            polls.append(self.polled_at)
        named = jobs[:MOST_JOBS]
        taken = sum(each.slots.taken for each in statuses)
        return msgspec.structs.replace(
            self._entry,
            state=self.state,
            taken=taken,
            busy=busy_slots(statuses),
            done=done_by(statuses),
            jobs=tuple(named),
            more_jobs=max(0, taken - len(named)),
            memory=resident_memory(),
            uptime_ms=_ms(now - self._started_at),
            poll_age_ms=_ms(now - max(polls)) if polls else None,
            loop_lag_ms=_ms(self.lag.take()),
        )

    async def knows(self, queue: str, task: str) -> bool:
        """True when a live worker of this queue knows the task; False where the store does not answer.

        Where the entry of another worker does not name all it has, it may be one of those.
        """
        async with self._reading:
            if self.clock() >= self._read_at + KNOWN_SECONDS:
                try:
                    async with asyncio.timeout(READ):
                        workers = await self._store.workers.list_workers(self._tenant)
                except (StoreError, TimeoutError):
                    return False
                self._live = [(worker, frozenset(worker.tasks)) for worker in workers]
                self._read_at = self.clock()
        return any(
            (queue in worker.queues or worker.more_queues > 0) and (task in tasks or worker.more_tasks > 0)
            for worker, tasks in self._live
            if worker.name != self._entry.name or (queue in worker.queues and task in tasks)
        )

    async def _announce(self) -> None:
        """Log what works where; without the store's address if the store does not tell it in time."""
        shown: str | None = None
        with suppress(StoreError, TimeoutError):
            async with asyncio.timeout(READ):
                shown = (await self._store.health.info()).url
        entry = self._entry
        said = {
            "store": shown,
            "queues": _listed([f"{name}={slots}" for name, slots in entry.queues.items()], entry.more_queues),
            "slots": entry.slots,
            "tasks": _listed(entry.tasks, entry.more_tasks),
        }
        _LOGGER.info("worker started", extra=self._about | said)
        if not entry.tasks:
            _LOGGER.warning(
                "this worker knows no task and sends all jobs back: name a module that imports the tasks",
                extra=self._about,
            )

    async def _renew(self) -> None:
        while True:
            try:
                await self._store.workers.register_worker(self._tenant, self.entry(), round(LEASE * 1000))
            except (StoreError, InvalidError) as error:
                if self._reasons.is_new(error):
                    _LOGGER.warning("registering the worker failed, retrying: %s", error, extra=self._about)
            else:
                if self._reasons.over():
                    _LOGGER.info("the worker is registered again", extra=self._about)
                with suppress(PenstockError):
                    await self._look_for_order()
            with suppress(TimeoutError):
                async with asyncio.timeout(LEASE / 3):
                    await self._changed.wait()
            self._changed.clear()

    async def _listen(self) -> None:
        """Follow orders as soon as a notification tells of one; without it, with the next renewal."""
        queue = QueueRef(self._tenant, next(iter(self._entry.queues)))
        listener = ControlListener(
            self._store, queue, self._look_for_order, self._about, is_server=self._store.is_server
        )
        with suppress(PenstockError):
            await listener.run()

    async def _look_for_order(self) -> bool:
        """Follow an order that was not followed yet; True where there was one."""
        instance = self._entry.instance or ""
        order = await self._store.workers.worker_order(self._tenant, self._entry.name, instance)
        if order is None or order == self._obeyed:
            return False
        self._obeyed = order
        by = f" by {order.by}" if order.by else ""
        if order.kind not in list(OrderKind):
            _LOGGER.warning("the order %r%s is not known to this version", order.kind, by, extra=self._about)
            return True
        _LOGGER.info("ordered%s to %s", by, order.kind, extra=self._about)
        self.stop(order.kind == OrderKind.STOP)
        return True

    async def _leave(self) -> None:
        tasks = [task for task in (self._renewing, self._measuring, self._listening) if task is not None]
        self._renewing = self._measuring = self._listening = None
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        self._is_stopping = False
        # Where this fails the lease runs out.
        with suppress(StoreError, TimeoutError):
            async with asyncio.timeout(LEAVE):
                await self._store.workers.unregister_worker(self._tenant, self._entry.name)

    @property
    def _about(self) -> dict[str, object]:
        return {"tenant": self._tenant, "worker": self._entry.name}


def _ms(seconds: float) -> int:
    return max(0, round(seconds * 1000))


def _first(names: Iterable[str]) -> list[str]:
    """As many of the names as an entry has room for."""
    found, size = list[str](), 0
    for name in names:
        size += len(name) + 8
        if size > NAMED_BYTES:
            break
        found.append(name)
    return found


def _listed(names: Sequence[str], others: int) -> str:
    """The names, up to a number of them, and how many others there are.

    >>> _listed(["a", "b"], 0)
    'a, b'
    """
    left_out = max(0, len(names) - NAMED) + others
    more = f" and {left_out} more" if left_out else ""
    return f"{', '.join(names[:NAMED])}{more}"
