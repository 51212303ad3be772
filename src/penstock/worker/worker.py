"""The worker of one queue: claims its jobs, executes and settles them, and does the queue's maintenance."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final

from penstock.core.errors import StoreError, StuckHandlerError
from penstock.core.job import QueueRef
from penstock.core.moves import Release
from penstock.maintenance.loop import SWEEP, MaintenanceLoop, MaintenanceOptions
from penstock.maintenance.pruner import EVENTS_AGE, EVENTS_KEPT
from penstock.maintenance.queue_maintenance import QueueMaintenance
from penstock.stores.bounds import CLAIM_SCAN, PROMOTE_LIMIT, RECOVER_LIMIT
from penstock.stores.claim_limits import checked_claim_limits
from penstock.stores.protocol import Store, Subscription
from penstock.tasks.execution import default_tier
from penstock.tasks.middleware import ExecutionMiddleware
from penstock.tasks.registry import Registry
from penstock.telemetry.logs import about_worker
from penstock.worker.claim import ClaimLoop
from penstock.worker.clock import Clock, boottime
from penstock.worker.control import CancelReader, ControlListener
from penstock.worker.delivery import Delivery
from penstock.worker.execute import Executions
from penstock.worker.executors.process.host import Host
from penstock.worker.executors.stopping import KILL_AFTER, TERM_AFTER, StopDelays
from penstock.worker.executors.tiers import Tiers
from penstock.worker.observer import ExecutionObserver
from penstock.worker.options import (
    DEFAULT_CONCURRENCY,
    DEFAULT_SHUTDOWN_TIMEOUT,
    MAX_CONCURRENCY,
    MAX_LEASE,
    MAX_TIME,
    MIN_LEASE,
    check_count,
    check_seconds,
    worker_name,
)
from penstock.worker.progress import ProgressReporter
from penstock.worker.queue_leases import QueueLeases
from penstock.worker.registration import Registration
from penstock.worker.renewer import LeaseRenewer
from penstock.worker.settle import Settler
from penstock.worker.slots import Slots
from penstock.worker.status import QueueStatus

_LOGGER: Final = logging.getLogger("penstock.worker")
CLAIM_WAIT: Final = 5.0
"""Seconds that a claim under way has to come back on shutdown."""
STOP_GRACE: Final = 2.0
"""Seconds, at least, that handlers have to end after they were told to stop."""
STOP_MARGIN: Final = 0.5
"""Seconds beyond the time in which the process of a handler is killed."""
NO_HANDLER_AFTER: Final = 24 * 3600.0
"""Seconds after which a job is dead whose task no worker knew."""
SETTLE_WAIT: Final = 5.0
"""Seconds that the last settlements have to be answered on shutdown."""


class Worker:
    """Executes the jobs of one queue until stopped. The caller has opened the store, and closes it.

    All times are in seconds. `name` has to differ between workers that run concurrently; the default does.
    `tick` is the interval of the queue's maintenance, half a lease by default, and `sweep` the interval at
    which every duty is attempted, whatever the store says is due. A `burst` worker ends when nothing is
    claimable now; it does not wait for delayed jobs. `executor` is the one of tasks that name none, nor
    their queue; `host` makes the processes of handlers that do not run in the worker. Workers of one
    process share an `upkeep`, a `renewer` of leases and a `registration`, their entry in the registry. A
    job is dead when no worker knew its task for `no_handler_after`. A worker ends itself when a thread runs
    for `stuck_after` beyond its timeout, by default the timeout again. The process of a handler that was
    told to stop gets SIGTERM after `term_after`, and SIGKILL `kill_after` later. A claim skips up to
    `claim_scan` entries of deleted jobs; claims and maintenance promote up to `promote_limit` jobs per
    call, and recover up to `recover_limit` leases. `clock` measures how long the worker's own leases last.
    `observer` is told of each delivery.
    """

    def __init__(
        self,
        store: Store,
        queue: QueueRef,
        registry: Registry,
        *,
        concurrency: int = DEFAULT_CONCURRENCY,
        lease: float = 30.0,
        poll: float = 5.0,
        shutdown_timeout: float = DEFAULT_SHUTDOWN_TIMEOUT,
        name: str | None = None,
        middleware: Sequence[ExecutionMiddleware] = (),
        burst: bool = False,
        tick: float | None = None,
        sweep: float = SWEEP,
        events_kept: int = EVENTS_KEPT,
        events_age: float = EVENTS_AGE,
        executor: str | None = None,
        host: Host | None = None,
        upkeep: MaintenanceLoop | None = None,
        no_handler_after: float = NO_HANDLER_AFTER,
        stuck_after: float | None = None,
        term_after: float = TERM_AFTER,
        kill_after: float = KILL_AFTER,
        claim_scan: int = CLAIM_SCAN,
        promote_limit: int = PROMOTE_LIMIT,
        recover_limit: int = RECOVER_LIMIT,
        registration: Registration | None = None,
        renewer: LeaseRenewer | None = None,
        clock: Clock = boottime,
        observer: ExecutionObserver | None = None,
    ) -> None:
        self.queue = queue
        self._observer = observer
        self.name = worker_name(name)
        self.concurrency = check_count("concurrency", concurrency, 1, MAX_CONCURRENCY)
        self.lease = check_seconds("lease", lease, MIN_LEASE, MAX_LEASE)
        self._store = store
        self.registry = registry
        self.poll = check_seconds("poll", poll, 0.01, MAX_TIME)
        self.shutdown_timeout = check_seconds("shutdown_timeout", shutdown_timeout, 0, MAX_TIME)
        self._middleware = tuple(middleware)
        self._burst = burst
        self._tick = self.lease / 2 if tick is None else check_seconds("tick", tick, 0.01, MAX_TIME)
        self._sweep = check_seconds("sweep", sweep, 0.01, MAX_TIME)
        self._events_kept = check_count("events_kept", events_kept, 0, 10**12)
        self._events_age = check_seconds("events_age", events_age, 0, 10 * 365 * MAX_TIME)
        self._executor = None if executor is None else default_tier("executor", executor)
        self._host = host
        self._upkeep = upkeep
        self._no_handler_after = check_seconds("no_handler_after", no_handler_after, 0, 365 * MAX_TIME)
        self._stuck_after = (
            None if stuck_after is None else check_seconds("stuck_after", stuck_after, 0, MAX_TIME)
        )
        self._delays = StopDelays(
            check_seconds("term_after", term_after, 0, MAX_TIME),
            check_seconds("kill_after", kill_after, 0, MAX_TIME),
        )
        self._limits = checked_claim_limits(
            claim_scan=claim_scan, promote_limit=promote_limit, recover_limit=recover_limit
        )
        if registration is None:
            slots = {queue.name: self.concurrency}
            registration = Registration(store, queue.tenant, self.name, slots, registry.names(), clock=clock)
            registration.stop = self.stop
        self._registration = registration
        self._renewer = renewer or LeaseRenewer(store)
        self._clock = clock
        self._loop: asyncio.AbstractEventLoop | None = None
        self._run: _Run | None = None
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
        await self._working(None, None)

    async def serve(self, subscription: Subscription, claimed: Callable[[], None]) -> float | None:
        """Work until stopped, or until the queue has been idle for a moment. For one of many in a process.

        Its maintenance is done elsewhere, and `subscription` is notified for it alone. `claimed` is called
        after each claim. The answer is the seconds after which something becomes due, where that is known.
        """
        return await self._working(subscription, claimed)

    @property
    def is_burst(self) -> bool:
        """True where it ends when nothing is claimable."""
        return self._burst

    @property
    def upkeep_options(self) -> MaintenanceOptions:
        """How the maintenance of its queue is done."""
        return MaintenanceOptions(
            tick=self._tick,
            sweep=self._sweep,
            events_kept=self._events_kept,
            events_age=self._events_age,
            limits=self._limits,
        )

    async def _working(
        self, subscription: Subscription | None, claimed: Callable[[], None] | None
    ) -> float | None:
        self.registry.freeze()
        self._loop = asyncio.get_running_loop()
        run = self._run = _Run(self, subscription, claimed)
        body = self._loop.create_task(self._run.work())
        self._pass_on()
        try:
            await asyncio.shield(body)
        except asyncio.CancelledError:
            self.stop(now=True)
            await asyncio.wait([body])
            raise
        finally:
            self._run = None
        return run.due_in

    async def give_back(self, opened: Store | None = None) -> int:
        """Give back what runs, in another event loop: for when a handler blocks the worker's own."""
        run = self._run
        if run is None:
            return 0
        held = [Release(each.job.id, each.token) for each in run.held.copy().values() if each.is_open]
        store = opened or self._store.clone()
        if opened is None:
            await store.open()
        await store.moves.settle(self.queue, held)
        # What was leased to it and did not get through to the loop.
        leases = await store.reads.leases(self.queue, self.name)
        unknown = [Release(lease.id, lease.token) for lease in leases if not run.knows(lease.token)]
        await store.moves.settle(self.queue, unknown)
        return len(held) + len(unknown)

    def _pass_on(self) -> None:
        if self._run is not None and self._stop_asked:
            self._run.stop(self._now_asked)


class _Run:
    """The parts of a worker while it runs, on the event loop it runs in."""

    def __init__(
        self,
        worker: Worker,
        subscription: Subscription | None = None,
        claimed: Callable[[], None] | None = None,
    ) -> None:
        store, queue = worker._store, worker.queue
        self._about = about = about_worker(queue, worker.name)
        self._shutdown_timeout = worker.shutdown_timeout
        self._stop_grace = max(STOP_GRACE, worker._delays.total + STOP_MARGIN)
        self.held: dict[str, Delivery] = {}
        held = self.held
        self._slots = slots = Slots(worker.concurrency)
        status = QueueStatus(queue.name, slots, held, lease=worker.lease, poll=worker.poll)
        self._maintenance = QueueMaintenance(
            store,
            queue,
            tick=worker._tick,
            sweep=worker._sweep,
            events_kept=worker._events_kept,
            events_age=worker._events_age,
            limits=worker._limits,
            upkeep=worker._upkeep,
            is_held=worker._renewer.holds,
        )
        self._reporter = ProgressReporter(store, queue, self._request_cancel)
        self._tiers = Tiers(
            queue,
            worker.registry,
            default=worker._executor,
            host=worker._host,
            concurrency=worker.concurrency,
            delays=worker._delays,
        )
        self._settler = Settler(
            store,
            queue,
            held,
            slots,
            lease=worker.lease,
            clock=worker._clock,
            registration=worker._registration,
            no_handler_after=worker._no_handler_after,
            flush=self._reporter.flush,
            child_ended=self._maintenance.nudge,
            about=about,
            observer=worker._observer,
        )
        self._executions = Executions(
            queue,
            worker.registry,
            worker=worker.name,
            held=held,
            slots=slots,
            settler=self._settler,
            reporter=self._reporter,
            middleware=worker._middleware,
            lease=worker.lease,
            clock=worker._clock,
            store=store,
            tiers=self._tiers,
            stuck_after=worker._stuck_after,
            stuck=self._stuck,
            about=about,
            observer=worker._observer,
        )
        self._leases = QueueLeases(
            worker._renewer,
            queue,
            held,
            worker=worker.name,
            lease=worker.lease,
            clock=worker._clock,
            cancel_requested=self._executions.request_cancel,
            lost=self._executions.lose_lease,
            failed=self._fail,
            about=about,
        )
        self._claims = ClaimLoop(
            store,
            queue,
            worker=worker.name,
            lease=worker.lease,
            clock=worker._clock,
            poll=worker.poll,
            burst=worker._burst,
            slots=slots,
            executions=self._executions,
            settler=self._settler,
            leases=self._leases,
            is_held=worker._renewer.holds,
            maintenance=self._maintenance,
            about=about,
            subscription=subscription,
            claimed=claimed,
            limits=worker._limits,
            status=status,
        )
        self._is_one_of_many = subscription is not None
        self._cancels = CancelReader(store, queue, held, self._executions.request_cancel)
        self._control = ControlListener(store, queue, self._cancels.look, about, is_server=store.is_server)
        self._registration = worker._registration
        self._status = status
        self._failure: StuckHandlerError | None = None
        self._now = asyncio.Event()
        self._end: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def knows(self, token: str) -> bool:
        """True for a lease that its executions know of."""
        return self._executions.knows(token)

    @property
    def due_in(self) -> float | None:
        """Seconds after which something becomes due, where that is known."""
        return self._claims.due_in

    def stop(self, now: bool) -> None:
        """Claim no more; with `now`, do not wait for what runs."""
        if not self._end.done():
            self._end.set_result(None)
        self._claims.stop()
        if not self._is_one_of_many:
            self._status.is_stopping = True
            self._registration.stopping()
        if now:
            self._now.set()

    async def work(self) -> None:
        """Everything from the first claim to the last settlement; raises what made it impossible to go on."""
        await self._tiers.open()
        self._leases.start()
        claiming = asyncio.create_task(self._claims.run())
        works = [claiming]
        if not self._is_one_of_many:
            works.append(asyncio.create_task(self._maintenance.run()))
        # A queue among many is subscribed to once its jobs run for long.
        starts_when = self._cancels.has_jobs if self._is_one_of_many else None
        works.append(asyncio.create_task(self._control.run(starts_when=starts_when)))
        ends: list[asyncio.Future[None]] = [self._end, *works]
        try:
            with self._registration.serving(self._status):
                async with self._registration.held():
                    await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
                    if any(_error(end) for end in ends):
                        self._now.set()
                    await self._shut_down(claiming)
        finally:
            for work in works:
                work.cancel()
            self._executions.close()
            await self._tiers.close()
            await self._reporter.close()
            await self._leases.stop()
            await asyncio.wait(works, timeout=STOP_GRACE)
            level = logging.DEBUG if self._is_one_of_many else logging.INFO
            _LOGGER.log(level, "worker stopped", extra=self._about)
        for error in map(_error, ends):
            if error is not None:
                raise error
        if self._failure is not None:
            raise self._failure

    async def _shut_down(self, claiming: asyncio.Task[None]) -> None:
        """Each step is bounded; `now` skips the drain."""
        self._claims.stop()
        await asyncio.wait([claiming], timeout=CLAIM_WAIT)
        if not self._now.is_set():
            now = asyncio.create_task(self._now.wait())
            idle = asyncio.create_task(self._slots.idle())
            await asyncio.wait(
                [now, idle], timeout=self._shutdown_timeout, return_when=asyncio.FIRST_COMPLETED
            )
            now.cancel()
            idle.cancel()
        if self._slots.taken:
            self._executions.stop_all()
            await _within(self._stop_grace, self._slots.idle())
        if self._slots.taken:
            self._executions.abandon_all()
        await _within(SETTLE_WAIT, self._settler.flush())
        self._settler.abandon()
        if not claiming.done():
            claiming.cancel()
        if self._claims.is_unsure:
            with suppress(StoreError):
                await _within(SETTLE_WAIT, self._claims.reconcile())

    def _request_cancel(self, delivery: Delivery) -> None:
        self._executions.request_cancel(delivery)

    def _stuck(self, delivery: Delivery) -> None:
        """A thread may never end: let the rest finish, then end with an error, and the process with it."""
        seconds = delivery.job.options.timeout_ms / 1000
        self._failure = StuckHandlerError(
            f"a handler of task {delivery.job.task!r} runs on in its thread long after its timeout of "
            f"{seconds:g} s: start the worker again, and run such tasks with executor='process', where they "
            "are killed"
        )
        self.stop(now=False)

    def _fail(self, error: BaseException) -> None:
        """The leases are no longer kept: what runs under them must end."""
        self._now.set()
        if self._end.done():
            _LOGGER.error("leases are no longer renewed: %s", error, extra=self._about)
        else:
            self._end.set_exception(error)


def _error(end: asyncio.Future[None]) -> BaseException | None:
    return end.exception() if end.done() and not end.cancelled() else None


async def _within(seconds: float, wait: Awaitable[object]) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await wait
