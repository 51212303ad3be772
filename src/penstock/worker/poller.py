"""Many queues in one process: one listener and one poll for all of them, nothing kept for idle ones."""

import asyncio
import logging
import random
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, NamedTuple

from penstock.core.clocks import STEP_MS
from penstock.core.errors import StoreError, StuckHandlerError
from penstock.maintenance.loop import MaintenanceLoop
from penstock.stores.bounds import CLAIMABLE_LIMIT
from penstock.stores.notifier import LocalSubscription
from penstock.stores.protocol import Store
from penstock.worker.backoff import StoreBackoff
from penstock.worker.executors.process.host import Host
from penstock.worker.executors.tiers import check_programs
from penstock.worker.registration import Registration
from penstock.worker.renewer import LeaseRenewer
from penstock.worker.worker import Worker

_LOGGER: Final = logging.getLogger("penstock.worker")
CROWDED: Final = 64
"""Queues of one process up to which each has a claim loop of its own that waits for jobs."""
MOST_STARTING: Final = 32
"""Queues whose first claim may be under way at the same time."""
LOOK_FACTOR: Final = 50
"""Where looking at all queues takes long, the next look begins so many times as long after it."""
SOONEST: Final = 0.05
"""Seconds between two looks at all queues, at least."""
FURTHEST: Final = 3600.0
"""Seconds ahead for which a queue is noted: a later look finds what is due after that."""
SILENCE: Final = 60.0


class _Awake(NamedTuple):
    """A queue that is served: its task, and the subscription that its claim loop waits on."""

    task: asyncio.Task[None]
    subscription: LocalSubscription


class QueuePoller:
    """Serves many queues of one tenant, each by its worker while there is something to claim.

    One subscription for all queues says where that is, and so does a look at all queues every `poll`
    seconds. An idle queue costs an entry in a table. A worker is stopped when its queue has been idle for a
    moment.
    """

    def __init__(
        self,
        store: Store,
        workers: Sequence[Worker],
        *,
        upkeep: MaintenanceLoop,
        registration: Registration,
        renewer: LeaseRenewer,
        host: Host | None = None,
    ) -> None:
        first = workers[0]
        self.shutdown_timeout = first.shutdown_timeout
        self._store = store
        self._tenant = first.queue.tenant
        self._poll = first.poll
        self._workers = {worker.queue.name: worker for worker in workers}
        self._upkeep = upkeep
        self._registration = registration
        self._renewer = renewer
        self._host = host
        self._about: dict[str, object] = {"tenant": self._tenant, "worker": first.name}
        self._awake: dict[str, _Awake] = {}
        self._queued: dict[str, None] = {}
        self._starting: set[str] = set()
        self._planned: dict[str, tuple[float, asyncio.Handle]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._changed = asyncio.Event()
        self._ended = asyncio.Event()
        self._failures: list[BaseException] = []
        self._told_at = 0
        self._stop_asked = False
        self._now_asked = False

    def stop(self, now: bool = False) -> None:
        """Ask `run` to return: after running jobs ended, or `now`. From any thread, and more than once."""
        self._stop_asked = True
        self._now_asked = self._now_asked or now
        if self._loop is not None:
            # A closed loop has nothing left to stop.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._pass_on)

    async def run(self) -> None:
        """Work until stopped. Being cancelled stops without draining; jobs that run are given back."""
        self._loop = asyncio.get_running_loop()
        body = self._loop.create_task(self._run())
        self._pass_on()
        try:
            await asyncio.shield(body)
        except asyncio.CancelledError:
            self.stop(now=True)
            await asyncio.wait([body])
            raise

    async def give_back(self) -> int:
        """Give back what runs, in another event loop: for when a handler blocks the worker's own."""
        store = self._store.clone()
        await store.open()
        workers = [self._workers[name] for name in self._awake.copy()]
        return sum(await asyncio.gather(*(worker.give_back(store) for worker in workers)))

    # While it runs

    async def _run(self) -> None:
        check_programs(next(iter(self._workers.values())).registry, self._workers)
        if self._host is not None:
            await self._host.open()
        try:
            async with self._renewer.held(), self._registration.held():
                try:
                    await self._serve_all()
                finally:
                    _LOGGER.info("worker stopped", extra=self._about)
        finally:
            if self._host is not None:
                await self._host.close()
        for failure in self._failures:
            raise failure

    async def _serve_all(self) -> None:
        upkeep = [(worker.queue, worker.upkeep_options) for worker in self._workers.values()]
        works = (self._upkeep.serve_many(upkeep), self._listen(), self._look())
        tasks = [asyncio.create_task(self._attend(work)) for work in works]
        try:
            await self._ended.wait()
        finally:
            for task in tasks[1:]:
                task.cancel()
            self._forget_planned()
            self._queued.clear()
            self._stop_awake()
            while self._awake:
                await asyncio.wait([each.task for each in self._awake.values()])
            tasks[0].cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _attend(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Exception as error:  # noqa: BLE001 (whatever it is ends the worker, and is raised there)
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        self._failures.append(error)
        # What other queues run is finished where only a thread is stuck.
        self.stop(now=not isinstance(error, StuckHandlerError))

    def _pass_on(self) -> None:
        if self._stop_asked:
            self._registration.stopping()
            self._ended.set()
            self._stop_awake()

    def _stop_awake(self) -> None:
        for name in self._awake:
            self._workers[name].stop(self._now_asked)

    # Which queues have something to claim

    async def _listen(self) -> None:
        outage = StoreBackoff(_LOGGER, "listening", self._about)
        while True:
            try:
                async with self._store.notifier.subscribe_tenant(self._tenant) as subscription:
                    # What came before nobody heard.
                    self._changed.set()
                    while True:
                        notified = await subscription.wait(SILENCE)
                        outage.over()
                        for name in notified.queues:
                            self._wake(name)
                        if notified.for_all:
                            self._changed.set()
            except StoreError as error:
                await asyncio.sleep(outage.failed(error))

    async def _look(self) -> None:
        outage = StoreBackoff(_LOGGER, "looking for jobs", self._about)
        clock = asyncio.get_running_loop().time
        while True:
            began = clock()
            self._changed.clear()
            try:
                await self._look_round()
            except StoreError as error:
                await asyncio.sleep(outage.failed(error))
                continue
            outage.over()
            pause = max(SOONEST, LOOK_FACTOR * (clock() - began)) * random.uniform(0.8, 1.2)
            await asyncio.sleep(pause)
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, self._poll * random.uniform(0.8, 1.2) - pause)):
                    await self._changed.wait()

    async def _look_round(self) -> None:
        names = [name for name in self._workers if name not in self._awake]
        for start in range(0, len(names), CLAIMABLE_LIMIT):
            chunk = names[start : start + CLAIMABLE_LIMIT]
            ahead = round(FURTHEST * 1000)
            self._registration.polled()
            page = await self._store.upkeep.claimable_queues(self._tenant, chunk, within_ms=ahead)
            back_ms, self._told_at = self._told_at - page.now, page.now
            if back_ms > STEP_MS:
                # What is held back by the time from before the clock was set back, a claim lets go.
                for name in self._workers:
                    self._wake(name)
            for name, at in page.queues.items():
                self._plan(name, (at - page.now) / 1000)

    # Queues that are served

    def _plan(self, name: str, seconds: float) -> None:
        """Serve a queue after so many seconds."""
        if seconds <= 0:
            self._wake(name)
        elif seconds <= FURTHEST and self._loop is not None:
            planned = self._planned.get(name)
            at = self._loop.time() + seconds
            if planned is None or planned[0] > at:
                if planned is not None:
                    planned[1].cancel()
                self._planned[name] = at, self._loop.call_at(at, self._wake, name)

    def _wake(self, name: str) -> None:
        """Serve a queue, or tell the one who does that there may be something new."""
        planned = self._planned.pop(name, None)
        if planned is not None:
            planned[1].cancel()
        awake = self._awake.get(name)
        if awake is not None:
            awake.subscription.notify()
        elif name in self._workers:
            self._queued[name] = None
            self._start_some()

    def _start_some(self) -> None:
        while self._queued and len(self._starting) < MOST_STARTING and not self._ended.is_set():
            name = next(iter(self._queued))
            del self._queued[name]
            self._starting.add(name)
            subscription = LocalSubscription()
            self._awake[name] = _Awake(asyncio.create_task(self._serve(name, subscription)), subscription)

    def _claimed(self, name: str) -> None:
        """The first claim of a queue was answered."""
        self._starting.discard(name)
        self._start_some()

    async def _serve(self, name: str, subscription: LocalSubscription) -> None:
        worker, due_in = self._workers[name], None
        claimed: Callable[[], None] = partial(self._claimed, name)
        try:
            due_in = await worker.serve(subscription, claimed)
        except Exception as error:  # noqa: BLE001 (whatever it is ends the worker, and is raised there)
            self._fail(error)
        finally:
            del self._awake[name]
            self._claimed(name)
        if self._ended.is_set():
            return
        if subscription.is_notified:
            # The notification came when the claim loop had ended.
            self._wake(name)
        elif due_in is not None:
            self._plan(name, due_in)

    def _forget_planned(self) -> None:
        for _, planned in self._planned.values():
            planned.cancel()
        self._planned.clear()
