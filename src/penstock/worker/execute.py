"""Runs what was claimed: one task per job, from the arguments to the ending."""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from penstock.client.kin import StoreKin
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
from penstock.worker.clock import boottime
from penstock.worker.deadlines import Deadlines
from penstock.worker.delivery import Delivery, Stop
from penstock.worker.endings import NoHandler, Withdrawn, after_error, after_return, error_text, timed_out
from penstock.worker.executors.protocol import Call
from penstock.worker.executors.tiers import Tiers
from penstock.worker.lease import margin_of
from penstock.worker.middleware import wrapped
from penstock.worker.progress import Reporter
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
        reporter: Reporter,
        middleware: Sequence[ExecutionMiddleware],
        lease: float,
        store: Store,
        tiers: Tiers,
        stuck_after: float | None,
        stuck: Callable[[Delivery], None],
        about: dict[str, object],
    ) -> None:
        self._queue = queue
        self._kin = StoreKin(store, queue)
        self._registry = registry
        self._tiers = tiers
        self._worker = worker
        self._held = held
        self._slots = slots
        self._settler = settler
        self._reporter = reporter
        self._middleware = tuple(middleware)
        self._lease = lease
        self._about = about
        self._margin = margin_of(lease)
        self._loop = asyncio.get_running_loop()
        self._owner = asyncio.current_task()
        self._stuck_after = stuck_after
        self._stuck = stuck
        self._deadlines = Deadlines(self._late)
        self._stuck_deadlines = Deadlines(self._too_late)
        self._running: set[Delivery] = set()
        self._overdue: set[Delivery] = set()
        self._is_told = False
        self._is_closed = False
        self._forsaken: dict[str, float] = {}

    def start(self, jobs: Sequence[Claimed], until: Sequence[float]) -> None:
        """Start all of them now. `until` is when each lease surely still holds."""
        self._slots.take(len(jobs))
        soon, now, wall = boottime() + self._margin, self._loop.time(), time.time()
        for job, end in zip(jobs, until, strict=True):
            delivery = self._held[job.token] = Delivery(job, end)
            task = self._registry.get(job.task)
            if job.cancel_requested or end <= soon:
                # Too late to run it under this lease: the reply took too long to get here.
                self._settler.settle(delivery, Interrupted())
            elif task is None:
                self._settler.settle(delivery, NoHandler())
            else:
                delivery.running = True
                delivery.in_thread = self._tiers.uses_thread(task)
                self._running.add(delivery)
                timeout = job.options.timeout_ms / 1000
                self._deadlines.add(delivery, now, timeout)
                ctx = self._context(delivery, wall + timeout)
                delivery.task = self._loop.create_task(self._run(delivery, task, ctx))
        self._warn_of_overdue()

    def release(self, jobs: Sequence[Claimed], until: Sequence[float]) -> None:
        """Give jobs back that were claimed and will not be started."""
        self._slots.take(len(jobs))
        for job, end in zip(jobs, until, strict=True):
            delivery = self._held[job.token] = Delivery(job, end)
            self._settler.settle(delivery, Interrupted())

    def asked(self, delivery: Delivery) -> None:
        """The job's cancel was asked for: tell its handler."""
        delivery.asked = True
        if delivery.running and delivery.stop is None:
            self._stop(delivery, Stop.CANCEL)

    def lost(self, delivery: Delivery) -> None:
        """The lease is gone: stop the handler and settle nothing."""
        if delivery.closed:
            return
        delivery.lost = True
        self._forsake(delivery)
        if delivery.running:
            self._deadlines.remove(delivery)
            self._interrupt(delivery)

    def knows(self, token: str) -> bool:
        """True for a lease that a delivery here holds, or was stopped under and must run out."""
        return token in self._held or token in self._forsaken

    def keeps(self, token: str) -> bool:
        """True for a lease held here that surely holds by the worker's own clock."""
        delivery = self._held.get(token)
        return delivery is not None and not delivery.lost and boottime() < delivery.until

    def stop_all(self) -> None:
        """Tell every handler that the worker shuts down."""
        for delivery in list(self._running):
            if delivery.stop is not Stop.TIMEOUT:
                self._stop(delivery, Stop.SHUTDOWN)

    def abandon_all(self) -> None:
        """Give back what still runs; what its handlers do from now on is not listened to."""
        # A thread that is stuck may still work: its lease runs out, and nobody takes the job up before.
        running = [delivery for delivery in self._running if not delivery.stuck]
        held = [delivery for delivery in running if not delivery.closed]
        if running:
            _LOGGER.warning(
                "%d handlers did not stop: %d jobs are given back",
                len(running),
                len(held),
                extra=self._about,
            )
        for delivery in held:
            self._settler.settle(delivery, Interrupted())
        for delivery in list(self._running):
            if delivery.task is not None:
                delivery.task.cancel()

    def close(self) -> None:
        """Look at no time any more."""
        self._deadlines.close()
        self._stuck_deadlines.close()
        self._is_closed = True

    async def _run(self, delivery: Delivery, task: Task[..., ..., Any], ctx: JobContext) -> None:
        delivery.started = True
        ending: Ending | Withdrawn
        try:
            if delivery.stop is not None or delivery.lost:
                ending = Interrupted()
            else:
                CURRENT.set(ctx)
                ending = await self._execute(delivery, task, ctx)
        except BaseException as error:
            if self._loop.is_closed():
                # The coroutine is thrown away together with its loop: there is nobody left to tell.
                raise
            # Whatever it was, the job is settled and the slot is free again.
            ending = Raised(error_text(error))
        self._ended(delivery, ending)

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
            kin=self._kin,
            lease=job,
        )

    def _ended(self, delivery: Delivery, ending: Ending | Withdrawn) -> None:
        self._deadlines.remove(delivery)
        if self._is_closed and delivery.stuck:
            # The worker has ended without it: its lease runs out.
            return
        if delivery.stuck:
            delivery.stuck = False
            self._slots.take_on()
        self._running.discard(delivery)
        if delivery in self._overdue and delivery.in_thread and not delivery.closed:
            _LOGGER.warning("ended after its timeout", extra=about_job(self._about, delivery.job))
        self._overdue.discard(delivery)
        self._is_told = self._is_told and bool(self._overdue)
        delivery.running = False
        # Through its context the task knows the delivery: a ring that only the collector would open.
        delivery.task = None
        if delivery.closed:
            # Settled before it ended; a settlement not handed over yet gives the slot back when it is.
            if delivery.sent or delivery.lost:
                self._slots.give_back(1)
        elif delivery.lost:
            # The keeper saw it and this loop had no turn since.
            self._forsake(delivery)
            self._slots.give_back(1)
        else:
            self._settler.settle(delivery, ending)

    def _forsake(self, delivery: Delivery) -> None:
        delivery.closed = True
        self._held.pop(delivery.token, None)
        now = boottime()
        self._forsaken = {token: end for token, end in self._forsaken.items() if end > now}
        self._forsaken[delivery.token] = delivery.until + 2 * self._lease

    def _late(self, delivery: Delivery) -> None:
        if delivery.closed:
            return
        if delivery.in_thread:
            # It cannot be stopped, only told. The lease is kept, so that no retry runs beside it.
            delivery.stop = Stop.TIMEOUT
            self._overdue.add(delivery)
            self._warn_of_overdue()
            timeout = delivery.job.options.timeout_ms / 1000
            after = timeout if self._stuck_after is None else self._stuck_after
            self._stuck_deadlines.add(delivery, self._loop.time(), after)
        else:
            self._stop(delivery, Stop.TIMEOUT)
            self._loop.call_later(SWALLOW_GRACE, self._give_up, delivery)

    def _too_late(self, delivery: Delivery) -> None:
        """The thread may never end: the worker does, once what else it runs has ended."""
        if not delivery.running:
            return
        delivery.stuck = True
        _LOGGER.error(
            "a thread runs on long after its timeout: the worker claims no more and ends",
            extra=about_job(self._about, delivery.job),
        )
        self._slots.write_off()
        self._stuck(delivery)

    def _give_up(self, delivery: Delivery) -> None:
        """The handler would not be cancelled: its slot stays taken, its lease does not."""
        if not delivery.closed:
            self._settler.settle(delivery, timed_out(delivery.job))
            self._overdue.add(delivery)
            self._warn_of_overdue()

    def _warn_of_overdue(self) -> None:
        """Once, until all handlers past their timeout have ended."""
        if self._overdue and not self._slots.spare and not self._is_told:
            self._is_told = True
            _LOGGER.warning(
                "no slot is free: %d of %d are held by handlers past their timeout",
                len(self._overdue),
                self._slots.count,
                extra=self._about,
            )

    def _stop(self, delivery: Delivery, why: Stop) -> None:
        delivery.stop = why
        self._interrupt(delivery)

    def _interrupt(self, delivery: Delivery) -> None:
        # A task that had no turn yet would end without a word; it looks at `stop` when it begins.
        if not delivery.in_thread and delivery.started and delivery.task is not None:
            delivery.task.cancel()
