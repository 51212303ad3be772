"""Runs what was claimed: one task per job, from the arguments to the ending."""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from penstock.client.child_jobs import StoreChildJobs
from penstock.core import decide
from penstock.core.decide import Ending, Interrupted, Raised
from penstock.core.errors import PayloadError
from penstock.core.job import Claimed, QueueRef
from penstock.stores.protocol import Store
from penstock.tasks.context import CURRENT, JobContext
from penstock.tasks.middleware import ExecutionMiddleware
from penstock.tasks.registry import Registry
from penstock.tasks.task import Task
from penstock.telemetry.logs import about_job
from penstock.worker.clock import Clock
from penstock.worker.deadlines import Deadlines
from penstock.worker.delivery import Delivery, Phase, Step, Stop
from penstock.worker.endings import NoHandler, Withdrawn, after_error, after_return, error_text, timed_out
from penstock.worker.executors.protocol import Call
from penstock.worker.executors.tiers import Tiers
from penstock.worker.middleware import wrapped
from penstock.worker.observer import ExecutionObserver
from penstock.worker.progress import ProgressReporter
from penstock.worker.queue_leases import margin_of
from penstock.worker.settle import Settler
from penstock.worker.slots import Slots

_LOGGER: Final = logging.getLogger("penstock.worker")
SWALLOW_GRACE: Final = 2.0
"""Seconds that a cancelled handler has to end before its lease is given up."""


class Executions:
    """The deliveries of one worker, on its event loop."""

    def __init__(
        self,
        queue: QueueRef,
        registry: Registry,
        *,
        worker: str,
        held: dict[str, Delivery],
        slots: Slots,
        settler: Settler,
        reporter: ProgressReporter,
        middleware: Sequence[ExecutionMiddleware],
        lease: float,
        clock: Clock,
        store: Store,
        tiers: Tiers,
        stuck_after: float | None,
        stuck: Callable[[Delivery], None],
        about: dict[str, object],
        observer: ExecutionObserver | None = None,
    ) -> None:
        self._queue = queue
        self._observer = observer
        self._child_jobs = StoreChildJobs(store, queue, registry)
        self._registry = registry
        self._tiers = tiers
        self._worker = worker
        self._held = held
        self._slots = slots
        self._settler = settler
        self._reporter = reporter
        self._middleware = tuple(middleware)
        self._lease = lease
        self._clock = clock
        self._about = about
        self._margin = margin_of(lease)
        self._loop = asyncio.get_running_loop()
        self._owner = asyncio.current_task()
        self._stuck_after = stuck_after
        self._stuck = stuck
        self._deadlines = Deadlines(self._overrun)
        self._stuck_deadlines = Deadlines(self._stick)
        self._executing: set[Delivery] = set()
        self._overdue: set[Delivery] = set()
        self._is_overdue_logged = False
        self._is_closed = False
        self._lost_leases: dict[str, float] = {}

    def start(self, jobs: Sequence[Claimed], until: Sequence[float]) -> None:
        """Start the handlers of all these jobs now. `until` is when each lease surely still holds."""
        self._slots.take(len(jobs))
        soon, now, wall = self._clock() + self._margin, self._loop.time(), time.time()
        if self._observer is not None:
            self._observer.claimed(self._queue, jobs, round(self._lease * 1000))
        for job, end in zip(jobs, until, strict=True):
            delivery = self._held[job.token] = Delivery(job, end)
            task = self._registry.get(job.task)
            if job.cancel_requested or end <= soon:
                # The answer to the claim took too long: there is no time left to run it under this lease.
                self._settler.settle(delivery, Interrupted())
            elif task is None:
                self._settler.settle(delivery, NoHandler())
            else:
                delivery.advance(Step.START)
                delivery.runs_in_thread = self._tiers.uses_thread(task)
                self._executing.add(delivery)
                timeout = job.options.timeout_ms / 1000
                self._deadlines.add(delivery, now, timeout)
                ctx = self._context(delivery, wall + timeout)
                delivery.task = self._loop.create_task(self._run(delivery, task, ctx))
        self._warn_of_overdue()

    def release(self, jobs: Sequence[Claimed], until: Sequence[float]) -> None:
        """Give back jobs that were claimed and will not be started."""
        self._slots.take(len(jobs))
        for job, end in zip(jobs, until, strict=True):
            delivery = self._held[job.token] = Delivery(job, end)
            self._settler.settle(delivery, Interrupted())

    def request_cancel(self, delivery: Delivery) -> None:
        """Tell the handler that the cancel of its job was requested."""
        delivery.cancel_requested = True
        if delivery.is_executing and delivery.stop is None:
            self._stop(delivery, Stop.CANCEL)

    def lose_lease(self, delivery: Delivery) -> None:
        """Stop the handler and settle nothing: the lease is gone."""
        if not delivery.advance(Step.LOSE):
            return
        self._remember_lost(delivery)
        if delivery.is_executing:
            self._deadlines.remove(delivery)
            self._interrupt(delivery)

    def knows(self, token: str) -> bool:
        """True for a lease that a delivery here holds, or was stopped under and must run out."""
        return token in self._held or token in self._lost_leases

    def stop_all(self) -> None:
        """Tell every handler that the worker shuts down."""
        for delivery in list(self._executing):
            if delivery.stop is not Stop.TIMEOUT:
                self._stop(delivery, Stop.SHUTDOWN)

    def abandon_all(self) -> None:
        """Give back every job whose handler still runs; what the handlers do from now on changes nothing."""
        # A thread that is stuck may still work: its lease runs out, and nobody claims the job before.
        stuck = (Phase.STUCK, Phase.FORSAKEN)
        executing = [delivery for delivery in self._executing if delivery.phase not in stuck]
        held = [delivery for delivery in executing if delivery.is_open]
        if executing:
            _LOGGER.warning(
                "%d handlers did not stop: releasing %d jobs",
                len(executing),
                len(held),
                extra=self._about,
            )
        for delivery in held:
            self._settler.settle(delivery, Interrupted())
        for delivery in list(self._executing):
            if delivery.task is not None:
                delivery.task.cancel()

    def close(self) -> None:
        """Watch no deadline any more."""
        self._deadlines.close()
        self._stuck_deadlines.close()
        self._is_closed = True

    async def _run(self, delivery: Delivery, task: Task[..., ..., Any], ctx: JobContext) -> None:
        delivery.advance(Step.BEGIN)
        observer, began = self._observer, self._loop.time()
        if observer is not None:
            observer.began(self._queue, delivery.job)
        ending: Ending | Withdrawn
        try:
            if delivery.stop is not None or delivery.lease.is_lost:
                ending = Interrupted()
            else:
                CURRENT.set(ctx)
                ending = await self._execute(delivery, task, ctx)
        except BaseException as error:
            if self._loop.is_closed():
                # The coroutine is thrown away together with its event loop: nothing is left to settle with.
                raise
            # Whatever the error was, the job is settled and the slot is free again.
            ending = Raised(error_text(error))
        if observer is not None:
            observer.ended(self._queue, delivery.job, self._loop.time() - began)
        self._end(delivery, ending)

    async def _execute(
        self, delivery: Delivery, task: Task[..., ..., Any], ctx: JobContext
    ) -> Ending | Withdrawn:
        try:
            call = self._tiers.of(task).prepare(delivery, task, ctx)
        except PayloadError as error:
            return Raised(error_text(error), decide.INVALID_PAYLOAD)
        except Exception as error:  # noqa: BLE001 (validators are the user's code)
            return Raised(error_text(error))
        try:
            value = await (self._through(ctx, call) if self._middleware else call())
            return after_return(delivery, task.encode_result(value))
        except BaseException as error:
            if self._loop.is_closed():
                raise
            if isinstance(error, asyncio.CancelledError) and self._is_cancelled:
                return Interrupted()
            return after_error(delivery, error)

    @property
    def _is_cancelled(self) -> bool:
        """True when the worker's own task was cancelled: then its loop may be cancelling all there are."""
        return self._owner is not None and self._owner.cancelling() > 0

    async def _through(self, ctx: JobContext, call: Call) -> Any:
        return await wrapped(self._middleware, ctx, call)()

    def _context(self, delivery: Delivery, deadline: float) -> JobContext:
        job = delivery.job
        return JobContext(
            id=job.id,
            task=job.task,
            queue=self._queue.name,
            tenant=self._queue.tenant,
            worker=self._worker,
            attempt=job.attempts + 1,
            max_attempts=job.options.max_attempts,
            delivery=job.delivery,
            drive=job.drive,
            fence=job.fence,
            priority=job.priority,
            key=job.key,
            enqueued_at=job.enqueued_at / 1000,
            deadline=deadline,
            report=partial(self._reporter.note, delivery),
            cancelled=delivery.is_stopped,
            child_jobs=self._child_jobs,
            lease=job,
        )

    def _end(self, delivery: Delivery, ending: Ending | Withdrawn) -> None:
        self._deadlines.remove(delivery)
        was_stuck = delivery.phase in (Phase.STUCK, Phase.FORSAKEN)
        if was_stuck:
            if self._is_closed:
                # The worker has ended without this handler: the lease runs out.
                return
            self._slots.take_on()
        self._executing.discard(delivery)
        if delivery in self._overdue and delivery.runs_in_thread and delivery.is_open:
            _LOGGER.warning("ended after its timeout", extra=about_job(self._about, delivery.job))
        self._overdue.discard(delivery)
        self._is_overdue_logged = self._is_overdue_logged and bool(self._overdue)
        # The task knows the delivery through its context: only the collector would open that cycle.
        delivery.task = None
        delivery.advance(Step.END)
        if delivery.phase is Phase.ENDED:
            if not delivery.lease.is_lost:
                self._settler.settle(delivery, ending)
                return
            # The renewal thread found it lost, and its message is still on its way.
            delivery.advance(Step.LOSE)
            self._remember_lost(delivery)
        if delivery.phase is Phase.OVER:
            self._slots.give_back(1)

    def _remember_lost(self, delivery: Delivery) -> None:
        self._held.pop(delivery.token, None)
        now = self._clock()
        self._lost_leases = {token: end for token, end in self._lost_leases.items() if end > now}
        self._lost_leases[delivery.token] = delivery.lease.until + 2 * self._lease

    def _overrun(self, delivery: Delivery) -> None:
        """The timeout of a handler is over."""
        if not delivery.is_open:
            return
        if delivery.runs_in_thread:
            # A thread can only be told to stop. Its lease is kept, so that no retry runs beside it.
            delivery.stop = Stop.TIMEOUT
            delivery.advance(Step.OVERRUN)
            self._overdue.add(delivery)
            self._warn_of_overdue()
            timeout = delivery.job.options.timeout_ms / 1000
            after = timeout if self._stuck_after is None else self._stuck_after
            self._stuck_deadlines.add(delivery, self._loop.time(), after)
        else:
            self._stop(delivery, Stop.TIMEOUT)
            self._loop.call_later(SWALLOW_GRACE, self._give_up, delivery)

    def _stick(self, delivery: Delivery) -> None:
        """The thread may never end: the worker does, once what else it runs has ended."""
        if not delivery.advance(Step.STICK):
            return
        _LOGGER.error(
            "a thread still runs long after its timeout: this worker stops claiming and ends",
            extra=about_job(self._about, delivery.job),
        )
        self._slots.write_off()
        self._stuck(delivery)

    def _give_up(self, delivery: Delivery) -> None:
        """The handler would not be cancelled: its slot stays taken, its lease does not."""
        if delivery.is_open:
            self._settler.settle(delivery, timed_out(delivery.job))
            self._overdue.add(delivery)
            self._warn_of_overdue()

    def _warn_of_overdue(self) -> None:
        """Once, until all handlers past their timeout have ended."""
        if self._overdue and not self._slots.spare and not self._is_overdue_logged:
            self._is_overdue_logged = True
            _LOGGER.warning(
                "no slot is free: %d of %d are occupied by handlers past their timeout",
                len(self._overdue),
                self._slots.count,
                extra=self._about,
            )

    def _stop(self, delivery: Delivery, why: Stop) -> None:
        delivery.stop = why
        self._interrupt(delivery)

    def _interrupt(self, delivery: Delivery) -> None:
        # A task that is cancelled before its first turn never runs; `_run` looks at `stop` and the lease.
        if not delivery.runs_in_thread and delivery.phase is not Phase.STARTING and delivery.task is not None:
            delivery.task.cancel()
