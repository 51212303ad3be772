"""Keeps the leases of the running jobs of a queue, in the thread of the process's lease renewer."""

import asyncio
import logging
import random
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from penstock.core.errors import StoreError
from penstock.core.job import QueueRef
from penstock.core.moves import Beat
from penstock.core.outcomes import Applied
from penstock.stores.bounds import CHUNK_JOBS
from penstock.stores.protocol import Store
from penstock.telemetry.logs import about_job
from penstock.worker.clock import boottime
from penstock.worker.delivery import Delivery
from penstock.worker.outage import Outage
from penstock.worker.renewer import JOIN, LeaseRenewer

_LOGGER: Final = logging.getLogger("penstock.worker")


def margin_of(lease: float) -> float:
    """Seconds before the end of a lease at which the worker no longer counts on it."""
    return min(1.0, lease / 10)


class LeaseKeeper:
    """Renews every held lease each third of a lease, and stops what it could not renew in time.

    `asked` and `lost` are called on the worker's event loop, `failed` when the keeper itself cannot go on.
    `claim_sent` is when a claim went out that was not answered yet: a loop that is held up leaves its jobs
    unattended, so after a while the keeper renews those too.
    """

    def __init__(
        self,
        renewer: LeaseRenewer,
        queue: QueueRef,
        held: dict[str, Delivery],
        *,
        worker: str,
        lease: float,
        asked: Callable[[Delivery], None],
        lost: Callable[[Delivery], None],
        failed: Callable[[BaseException], None],
        about: dict[str, object],
    ) -> None:
        self._renewer = renewer
        self._queue = queue
        self._held = held
        self._worker = worker
        self._lease = lease
        self._margin = margin_of(lease)
        self._asked = asked
        self._lost = lost
        self._failed = failed
        self._about = about
        self._outage = Outage(_LOGGER, "renewing leases", about)
        self._loop = asyncio.get_running_loop()
        self._ended = asyncio.Event()
        self._keeping: asyncio.Task[None] | None = None
        self._is_stopped = False
        self.claim_sent: float | None = None
        self.adopted: dict[str, float] = {}

    def start(self) -> None:
        """Begin to renew."""
        self._renewer.enter()
        self._renewer.start(self)

    async def stop(self) -> None:
        """Stop renewing. Bounded: a thread that does not end is left behind."""
        self._is_stopped = True
        self._renewer.call(self._cancel)
        with suppress(TimeoutError):
            async with asyncio.timeout(JOIN):
                await self._ended.wait()
        await self._renewer.leave()

    # In the thread

    async def keep(self, renewer: LeaseRenewer) -> None:
        """Renew leases until stopped."""
        self._keeping = asyncio.create_task(self._keep(renewer))
        if self._is_stopped:
            self._keeping.cancel()
        try:
            await self._keeping
        except asyncio.CancelledError:
            self._keeping.cancel()
        finally:
            self._tell(self._ended.set)

    def fail(self, error: BaseException) -> None:
        """Tell the worker that its leases can no longer be renewed."""
        self._tell(self._failed, error)

    def _cancel(self) -> None:
        if self._keeping is not None:
            self._keeping.cancel()

    async def _keep(self, renewer: LeaseRenewer) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._renew_forever(renewer))
            group.create_task(self._fence_forever())

    # A client may lose a cancel that comes together with an answer. Whoever cancels sets `_is_stopped` first.

    async def _renew_forever(self, renewer: LeaseRenewer) -> None:
        # Nothing is held yet.
        first = boottime() + self._lease / 3 * random.uniform(0.9, 1.0)
        store = await renewer.opened()
        await self._rest(max(0.0, first - boottime()))
        while not self._is_stopped:
            try:
                async with asyncio.timeout(self._lease):
                    await self._renew(store)
            except StoreError as error:
                await self._rest(self._outage.failed(error, self._lease / 6))
            except TimeoutError:
                _LOGGER.warning("renewing leases took longer than a lease", extra=self._about)
            else:
                self._outage.over()
                await self._rest(self._lease / 3 * random.uniform(0.9, 1.0))

    async def _fence_forever(self) -> None:
        while not self._is_stopped:
            nearest = self._fence()
            await self._rest(max(0.005, min(nearest, self._lease / 4)))

    async def _rest(self, seconds: float) -> None:
        if not self._is_stopped:
            await asyncio.sleep(seconds)

    def _fence(self) -> float:
        """Stop what may have no lease any more; seconds until the next lease comes to that."""
        now = boottime()
        nearest = self._lease
        for delivery in self._held.copy().values():
            if delivery.closed or delivery.lost:
                continue
            left = delivery.until - self._margin - now
            if left > 0:
                nearest = min(nearest, left)
                continue
            delivery.lost = True
            _LOGGER.warning(
                "lease not renewed in time: handler stopped", extra=about_job(self._about, delivery.job)
            )
            self._tell(self._lost, delivery)
        return nearest

    async def _renew(self, store: Store) -> None:
        self._fence()
        held = [delivery for delivery in self._held.copy().values() if not delivery.lost]
        for start in range(0, len(held), CHUNK_JOBS):
            await self._beat(store, held[start : start + CHUNK_JOBS])
        sent = self.claim_sent
        if sent is not None and boottime() - sent > self._lease / 4:
            await self._adopt(store)

    async def _beat(self, store: Store, held: list[Delivery]) -> None:
        sent = boottime()
        beats = [Beat(delivery.job.id, delivery.token) for delivery in held]
        answers = await store.heartbeat(self._queue, beats, self._lease_ms)
        for delivery, answer in zip(held, answers, strict=True):
            if isinstance(answer, Applied):
                delivery.until = max(delivery.until, sent + self._lease)
                if answer.cancel_requested and not delivery.asked:
                    delivery.asked = True
                    self._tell(self._asked, delivery)
            elif not delivery.closed:
                # Refused also when it was settled a moment ago; the loop knows.
                self._tell(self._refused, delivery)

    def _refused(self, delivery: Delivery) -> None:
        """On the worker's loop: the store says that the lease is not ours."""
        if not delivery.closed and not delivery.lost:
            _LOGGER.warning("lease lost: handler stopped", extra=about_job(self._about, delivery.job))
            self._lost(delivery)

    async def _adopt(self, store: Store) -> None:
        """Renew leases whose claim the held-up event loop has not seen the answer of."""
        leases = await store.leases(self._queue, self._worker)
        unknown = [lease for lease in leases if lease.token not in self._held][:CHUNK_JOBS]
        if not unknown:
            return
        sent = boottime()
        beats = [Beat(lease.id, lease.token) for lease in unknown]
        answers = await store.heartbeat(self._queue, beats, self._lease_ms)
        for lease, answer in zip(unknown, answers, strict=True):
            if isinstance(answer, Applied):
                self.adopted[lease.token] = sent + self._lease

    @property
    def _lease_ms(self) -> int:
        return round(self._lease * 1000)

    def _tell(self, what: Callable[..., Any], *args: object) -> None:
        # A closed loop has nobody left to tell.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(what, *args)
