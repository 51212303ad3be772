"""The claim loop: takes as many jobs as there are free slots, and rests while there are none."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final

from penstock.core.errors import DamagedQueueError, StoreError, StoreTimeoutError
from penstock.core.job import Claimed, QueueRef
from penstock.core.moves import Release
from penstock.core.outcomes import Claims
from penstock.maintenance.queue_maintenance import QueueMaintenance
from penstock.maintenance.reclaimer import Reclaimer
from penstock.stores.claim_limits import CLAIM_LIMITS, ClaimLimits
from penstock.stores.protocol import Store, Subscription
from penstock.stores.values import Topic
from penstock.worker.backoff import StoreBackoff
from penstock.worker.claim_size import ClaimSize
from penstock.worker.clock import Clock
from penstock.worker.execute import Executions
from penstock.worker.queue_leases import QueueLeases
from penstock.worker.settle import Settler
from penstock.worker.slots import Slots
from penstock.worker.status import QueueStatus

_LOGGER: Final = logging.getLogger("penstock.worker")
LINGER: Final = 2.0
"""Seconds for which an idle queue of a crowded process keeps its claim loop."""
SHORTEST_REST: Final = 0.01
"""Seconds to rest at least after an empty claim, whatever the store says is due."""
HELD_REST: Final = 0.25
"""The same while what is due are leases of this process, which it leaves alone."""
GIVE_WAY: Final = 0.25
"""Seconds to rest before a claim while jobs come back that only other workers can execute."""


class ClaimLoop:
    """One per worker. A claim asks for free slots, and all it brings is started.

    With a `subscription` of its own it ends when the queue has been idle for a moment; its notifier begins
    another one when there is something to claim. `claimed` is called after each claim.
    """

    def __init__(
        self,
        store: Store,
        queue: QueueRef,
        *,
        worker: str,
        lease: float,
        clock: Clock,
        poll: float,
        burst: bool,
        slots: Slots,
        executions: Executions,
        settler: Settler,
        leases: QueueLeases,
        is_held: Callable[[str], bool],
        maintenance: QueueMaintenance,
        about: dict[str, object],
        subscription: Subscription | None = None,
        claimed: Callable[[], None] | None = None,
        limits: ClaimLimits = CLAIM_LIMITS,
        status: QueueStatus,
    ) -> None:
        self._store = store
        self._status = status
        self._queue = queue
        self._worker = worker
        self._lease = lease
        self._clock = clock
        self._lease_ms = round(lease * 1000)
        self._poll = poll
        self._burst = burst
        self._limits = limits
        self._slots = slots
        self._executions = executions
        self._settler = settler
        self._leases = leases
        self._maintenance = maintenance
        self._about = about
        self._is_held = is_held
        self._reclaimer = Reclaimer(store, queue, is_held=is_held)
        self._outage = StoreBackoff(_LOGGER, "claiming", about)
        self._size = ClaimSize(slots.count, is_server=store.is_server)
        self._task: asyncio.Task[None] | None = None
        self._is_resting = False
        self._is_listening = False
        self._was_notified = True
        self._is_stopping = False
        self._is_unsure = False
        self._subscription = subscription
        self._claimed = claimed
        self.due_in: float | None = None
        """Seconds after its end at which something becomes due, where that is known."""
        slots.when_idle = self._idle

    async def run(self) -> None:
        """Claim until stopped; in a burst, until nothing is claimable."""
        self._task = asyncio.current_task()
        if self._subscription is not None:
            await self._serve(self._subscription)
            return
        while not self._is_stopping:
            try:
                async with self._store.notifier.subscribe(self._queue, Topic.READY) as subscription:
                    await self._serve(subscription)
                return
            except StoreError as error:
                await self._rest(partial(asyncio.sleep, self._failed(error)))

    def stop(self) -> None:
        """Claim no more. A claim under way is waited for: cutting it off could lose its jobs for a lease."""
        self._is_stopping = True
        self._slots.wake()
        self.nudge()

    def nudge(self) -> None:
        """End a rest early."""
        if self._is_resting and self._task is not None:
            self._is_resting = False
            self._task.cancel()

    def _idle(self) -> None:
        """End the wait for a notification when nothing runs any more: the next claim may end a burst."""
        if self._is_listening and self._burst:
            self.nudge()

    async def reconcile(self) -> None:
        """Give back jobs that the store leased to this worker in claims whose answers were lost."""
        leases = await self._store.reads.leases(self._queue, self._worker)
        unknown = [lease for lease in leases if not self._executions.knows(lease.token)]
        if unknown:
            _LOGGER.warning("giving back %d jobs of lost claims", len(unknown), extra=self._about)
            await self._store.moves.settle(self._queue, [Release(lease.id, lease.token) for lease in unknown])
        self._is_unsure = False

    @property
    def is_unsure(self) -> bool:
        """True when a claim failed and it is not known yet what it took."""
        return self._is_unsure

    async def _serve(self, subscription: Subscription) -> None:
        while not self._is_stopping:
            self._status.is_waiting = True
            await self._slots.free()
            if not self._settler.is_working:
                await self._rest(self._settler.working)
            self._status.moved_at = self._clock()
            self._status.is_waiting = False
            is_quiet = self._burst and not self._slots.taken
            if is_quiet:
                await self._settler.flush()
                # The ending of the last job may let another one go.
                await self._maintenance.relay()
            limit = 0 if self._must_stop() else min(self._slots.spare, self._size.limit)
            if not limit:
                continue
            claims = await self._claim(limit)
            if self._claimed is not None:
                self._claimed()
            if claims is not None and claims.is_more:
                # What it brought begins before the next is asked for.
                await asyncio.sleep(0)
            if claims is None or claims.is_more or len(claims.jobs) >= limit:
                continue
            if is_quiet and not claims.jobs and not claims.expired:
                return
            if self._subscription is not None and not self._slots.taken:
                if await self._is_idle(subscription, claims):
                    return
            elif not (self._burst and not self._slots.taken):
                await self._await_notification(subscription, self._seconds(claims))
                if self._settler.gives_way:
                    await self._rest(partial(asyncio.sleep, GIVE_WAY))

    async def _is_idle(self, subscription: Subscription, claims: Claims) -> bool:
        """Wait for a notification for a moment; True where none came, and nothing is due yet."""
        due_in = None if claims.wait_ms is None else max(self._seconds(claims), claims.wait_ms / 1000)
        await self._await_notification(subscription, LINGER if due_in is None else min(LINGER, due_in))
        self.due_in = None if due_in is None else due_in - LINGER
        return not self._was_notified and (self.due_in is None or self.due_in > 0)

    def _must_stop(self) -> bool:
        return self._is_stopping

    async def _claim(self, limit: int) -> Claims | None:
        """One claim with all that follows from it; None when the store failed, after a wait."""
        try:
            if self._is_unsure:
                await self.reconcile()
            # Until the answer is here, and also when this call is cut off.
            self._is_unsure = True
            sent = self._leases.claim_sent = self._clock()
            self._status.polled_at = self._status.moved_at = sent
            claims = await self._store.moves.claim(
                self._queue,
                worker=self._worker,
                limit=limit,
                lease_ms=self._lease_ms,
                limits=self._limits,
            )
            self._is_unsure = False
            if claims.jobs:
                self._take(claims.jobs, sent)
            if claims.expired and await self._reclaimer.recover(claims.expired):
                self._maintenance.nudge()
        except StoreError as error:
            self._leases.claim_sent = None
            if isinstance(error, StoreTimeoutError):
                self._size.shrink(limit)
            await self._rest(partial(asyncio.sleep, self._failed(error)))
            return None
        finally:
            self._leases.claim_sent = None
        self._outage.over()
        if limit <= len(claims.jobs):
            self._size.grow(limit)
        return claims

    def _failed(self, error: StoreError) -> float:
        """Seconds to wait before the next claim. A burst does not wait until somebody mends the queue."""
        if self._burst and isinstance(error, DamagedQueueError):
            raise error
        return self._outage.failed(error)

    def _take(self, jobs: Sequence[Claimed], sent: float) -> None:
        adopted = self._leases.adopted
        until = [adopted.pop(job.token, sent + self._lease) for job in jobs]
        adopted.clear()
        if self._is_stopping:
            self._executions.release(jobs, until)
        else:
            self._executions.start(jobs, until)

    def _seconds(self, claims: Claims) -> float:
        if claims.wait_ms is None:
            return self._poll
        shortest = HELD_REST if any(self._is_held(lease.token) for lease in claims.expired) else SHORTEST_REST
        return min(self._poll, max(shortest, claims.wait_ms / 1000))

    async def _await_notification(self, subscription: Subscription, seconds: float) -> None:
        self._is_listening, self._was_notified = True, True
        try:
            await self._rest(partial(self._listen, subscription, seconds))
        finally:
            self._is_listening = False

    async def _listen(self, subscription: Subscription, seconds: float) -> None:
        self._was_notified = await subscription.wait(seconds)

    async def _rest(self, wait: Callable[[], Awaitable[object]]) -> None:
        """Wait, unless there is no time for it; `stop` and `nudge` end it by a cancel that stays in here."""
        if self._is_stopping or self._task is None:
            return
        self._is_resting = True
        try:
            await wait()
        except asyncio.CancelledError:
            if self._is_resting or self._task.uncancel():
                raise
        finally:
            self._is_resting = False
