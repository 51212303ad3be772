"""Tells the store how deliveries ended: joined into few calls, repeated until answered."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, Final

from penstock.client.coalesce import Coalescer
from penstock.core import decide
from penstock.core.decide import Ending, Interrupted, Raised, Unhandled
from penstock.core.errors import StoreError
from penstock.core.events import first_line
from penstock.core.job import Claimed, QueueRef
from penstock.core.moves import Bury, Complete, Fail, Release, Retry, Settlement, Snooze
from penstock.core.outcomes import Applied, Refused
from penstock.core.states import State
from penstock.stores.bounds import CHUNK_BYTES, CHUNK_JOBS
from penstock.stores.protocol import Store
from penstock.telemetry.logs import about_job
from penstock.worker.backoff import CAP, StoreBackoff
from penstock.worker.clock import Clock
from penstock.worker.delivery import Delivery, Phase, Step
from penstock.worker.endings import NoHandler, Withdrawn, error_text
from penstock.worker.observer import ExecutionObserver
from penstock.worker.registration import Registration
from penstock.worker.slots import Slots

_LOGGER: Final = logging.getLogger("penstock.worker")
GIVING_WAY: Final = decide.UNHANDLED_SOON_MS[1] / 1000 + 1.0
"""Seconds for which jobs that went back soon may turn up again."""
MOST_TASKS_NAMED: Final = 100
"""Unknown tasks that a worker names in its log."""
_Item = tuple[Delivery, Settlement]


class Settler:
    """Settles deliveries of one worker.

    A slot is given back when the settlement of its job is handed to the store: the next claim overlaps with
    the answer. While the store does not answer, `working` keeps the claim loop from taking more.
    """

    def __init__(
        self,
        store: Store,
        queue: QueueRef,
        held: dict[str, Delivery],
        slots: Slots,
        *,
        lease: float,
        clock: Clock,
        registration: Registration,
        no_handler_after: float,
        flush: Callable[[Delivery], Awaitable[None]],
        child_ended: Callable[[], None],
        about: dict[str, object],
        observer: ExecutionObserver | None = None,
    ) -> None:
        self._store = store
        self._observer = observer
        self._queue = queue
        self._held = held
        self._slots = slots
        self._lease = lease
        self._clock = clock
        self._registration = registration
        self._no_handler_after = no_handler_after
        self._unknown_tasks: set[str] = set()
        self._gives_way_until = float("-inf")
        self._flush = flush
        self._child_ended = child_ended
        self._about = about
        self._coalescer: Coalescer[_Item, None] = Coalescer(
            self._call, limit=CHUNK_JOBS, size=_size, size_limit=CHUNK_BYTES
        )
        self._outage = StoreBackoff(_LOGGER, "settling", about)
        self._working = asyncio.Event()
        self._working.set()
        self._slow: set[asyncio.Task[None]] = set()
        self._is_abandoned = False

    def settle(self, delivery: Delivery, ending: Ending | Withdrawn | NoHandler) -> None:
        """Settle, soon. Nothing that happens to the handler's task cuts this off."""
        delivery.advance(Step.DECIDE)
        if isinstance(ending, Withdrawn):
            self._go(self._withdraw(delivery, ending.reason))
        elif isinstance(ending, NoHandler):
            self._go(self._send_back(delivery))
        elif delivery.has_progress:
            self._go(self._report_first(delivery, ending))
        else:
            self._submit(delivery, ending)

    @property
    def is_working(self) -> bool:
        """False while the store does not answer settlements."""
        return self._working.is_set()

    async def working(self) -> None:
        """Wait until the store answers settlements."""
        await self._working.wait()

    @property
    def gives_way(self) -> bool:
        """True while jobs come back that this worker sent back for others: those are to claim them first."""
        return self._clock() < self._gives_way_until

    async def flush(self) -> None:
        """Wait until everything is settled or given up."""
        while self._slow:
            await asyncio.wait(self._slow)
        await self._coalescer.flush()

    def abandon(self) -> None:
        """Repeat nothing from now on."""
        self._is_abandoned = True

    def _go(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._slow.add(task)
        task.add_done_callback(self._slow.discard)

    async def _report_first(self, delivery: Delivery, ending: Ending) -> None:
        await self._report(delivery)
        self._submit(delivery, ending)

    async def _report(self, delivery: Delivery) -> None:
        # The last progress is worth a moment, and not the lease.
        with suppress(TimeoutError):
            async with asyncio.timeout(min(1.0, self._lease / 3)):
                await self._flush(delivery)

    async def _withdraw(self, delivery: Delivery, reason: str | None) -> None:
        """Ask for the cancel, then give the job back: the store makes that a cancelled job.

        The request names no lease, so it is sent only while this one surely holds: later it could
        reach another execution. The release is refused then, or the job comes back and is cancelled again.
        """
        why = {} if reason is None else {"error": first_line(decide.clean_error(reason))}
        _LOGGER.info("cancelled by its handler", extra=about_job(self._about, delivery.job, **why))
        if delivery.has_progress:
            await self._report(delivery)
        outage = StoreBackoff(_LOGGER, "cancelling", self._about)
        while self._is_surely_held(delivery):
            try:
                await self._store.moves.cancel(self._queue, [delivery.job.id])
            except StoreError as error:
                await asyncio.sleep(outage.failed(error, self._cap))
            else:
                break
        self._submit(delivery, Interrupted(reason))

    async def _send_back(self, delivery: Delivery) -> None:
        """Send back a job whose task this worker does not know, by what other workers know."""
        job = delivery.job
        is_known = await self._registration.knows(self._queue.name, job.task)
        self._warn_of_task(job, is_known)
        if is_known:
            self._gives_way_until = self._clock() + GIVING_WAY
        # The store's time at the claim: its clock gave the deadline.
        now = job.deadline - round(self._lease * 1000)
        self._submit(delivery, Unhandled(now, is_known, round(self._no_handler_after * 1000)))

    def _warn_of_task(self, job: Claimed, is_known: bool) -> None:
        """Once for each task: a queue may be full of them."""
        if job.task in self._unknown_tasks or len(self._unknown_tasks) >= MOST_TASKS_NAMED:
            return
        self._unknown_tasks.add(job.task)
        others = "another live worker does" if is_known else "nor does any live worker of this queue"
        _LOGGER.warning(
            "this worker does not know task %r, %s: its jobs go back to the queue",
            job.task,
            others,
            extra=about_job(self._about, job),
        )

    def _submit(self, delivery: Delivery, ending: Ending) -> None:
        try:
            settlement = decide.settle(delivery.job, ending, random.uniform)
        except Exception as error:  # noqa: BLE001 (a delivery is settled, whatever was made of it)
            settlement = decide.settle(delivery.job, Raised(error_text(error)), random.uniform)
        self._tell(delivery, settlement)
        self._coalescer.submit((delivery, settlement))
        # The claim loop's turn comes right after that of the call: a store can join the two.
        self._slots.wake()

    async def _call(self, batch: Sequence[_Item]) -> Sequence[None]:
        freed = 0
        for delivery, _ in batch:
            delivery.advance(Step.SEND)
            # A handler that runs on keeps its slot.
            if delivery.phase is Phase.OVER:
                freed += 1
        self._slots.give_back(freed)
        left = batch
        while left:
            try:
                answers = await self._store.moves.settle(self._queue, [settlement for _, settlement in left])
            except StoreError as error:
                left = await self._after_failure(left, error)
            except Exception:
                _LOGGER.exception("settling %d jobs failed: their leases will run out", len(left))
                self._forget(left)
                break
            else:
                self._outage.over()
                has_parents = False
                for (delivery, settlement), answer in zip(left, answers, strict=True):
                    self._held.pop(delivery.token, None)
                    if self._observer is not None:
                        self._observer.settled(self._queue, delivery.job, settlement, answer)
                    if type(answer) is not Applied:
                        self._refused(delivery, settlement, answer)
                        continue
                    if type(settlement) is Release:
                        # Only the store knows whether someone had asked for its cancel.
                        word = "cancelled" if answer.state is State.CANCELLED else "given back"
                        _LOGGER.info(word, extra=about_job(self._about, delivery.job))
                    if delivery.job.parents and answer.state.is_ended:
                        has_parents = True
                if has_parents:
                    self._child_ended()
                break
        self._working.set()
        return [None] * len(batch)

    async def _after_failure(self, batch: Sequence[_Item], error: StoreError) -> Sequence[_Item]:
        """What is still worth repeating, after a wait."""
        self._working.clear()
        try:
            delay = self._outage.failed(error, self._cap)
        except StoreError:
            _LOGGER.exception("settling %d jobs failed: their leases will run out", len(batch))
            self._forget(batch)
            return ()
        await asyncio.sleep(delay)
        gone = [item for item in batch if not self._is_worth_repeating(item[0])]
        for delivery, settlement in gone:
            _LOGGER.warning(
                "could not apply %s in time: the lease has ended",
                settlement.move,
                extra=about_job(self._about, delivery.job),
            )
        self._forget(gone)
        return [item for item in batch if self._is_worth_repeating(item[0])] if gone else batch

    def _is_worth_repeating(self, delivery: Delivery) -> bool:
        # An outage stops recovery as well, so the lease may outlive its time by a little.
        return not self._is_abandoned and self._clock() < delivery.lease.until + self._lease

    def _is_surely_held(self, delivery: Delivery) -> bool:
        lease = delivery.lease
        return not self._is_abandoned and not lease.is_lost and self._clock() < lease.until

    @property
    def _cap(self) -> float:
        return min(CAP, self._lease / 3)

    def _forget(self, batch: Sequence[_Item]) -> None:
        for delivery, _ in batch:
            self._held.pop(delivery.token, None)

    def _refused(self, delivery: Delivery, settlement: Settlement, answer: Applied | Refused) -> None:
        why = answer.why if isinstance(answer, Refused) else answer.state
        _LOGGER.warning(
            "%s refused (%s): this worker no longer held the lease",
            settlement.move,
            why,
            extra=about_job(self._about, delivery.job),
        )

    def _tell(self, delivery: Delivery, settlement: Settlement) -> None:
        """Log what a reader wants to know: success only when asked for details, what is given back once that
        is answered, and what has no handler once for its task."""
        if type(settlement) is Release or (type(settlement) is Snooze and settlement.reason is not None):
            return
        if type(settlement) is Complete:
            if _LOGGER.isEnabledFor(logging.DEBUG):
                result = {} if settlement.result is None else {"result": settlement.result}
                _LOGGER.debug("completed", extra=about_job(self._about, delivery.job, **result))
            return
        level = logging.WARNING if isinstance(settlement, Bury | Fail) else logging.INFO
        if not _LOGGER.isEnabledFor(level):
            return
        more: dict[str, object] = {}
        if isinstance(settlement, Retry | Bury | Fail):
            more = {"reason": settlement.fault.reason, "error": first_line(settlement.fault.error)}
        word = _WORDS[type(settlement)]
        if type(settlement) is Bury and not settlement.uses_attempt:
            word = "dead without an attempt"
        _LOGGER.log(level, word, extra=about_job(self._about, delivery.job, **more))


_WORDS: Final[dict[type, str]] = {
    Retry: "attempt failed, will be tried again",
    Bury: "attempt failed, none left",
    Fail: "failed for good",
    Snooze: "snoozed",
}


def _size(item: _Item) -> int:
    settlement = item[1]
    if type(settlement) is Complete:
        return 0 if settlement.result is None else len(settlement.result)
    return 1_000
