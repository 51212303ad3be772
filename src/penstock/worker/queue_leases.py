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
from penstock.worker.backoff import StoreBackoff
from penstock.worker.clock import Clock
from penstock.worker.delivery import Delivery
from penstock.worker.renewer import JOIN_TIMEOUT, LeaseRenewer

_LOGGER: Final = logging.getLogger("penstock.worker")


def margin_of(lease: float) -> float:
    """Seconds before the end of a lease at which the worker no longer counts on it."""
    return min(1.0, lease / 10)


class QueueLeases:
    """Renews every held lease each third of a lease, and stops what it could not renew in time.

    `cancel_requested` and `lost` are called on the worker's event loop, `failed` when it cannot go on.
    `claim_sent` is when a claim went out that was not answered yet: while the event loop is blocked, nobody
    renews the jobs of that claim, so after a while the keeper renews those too.
    """

    def __init__(
        self,
        renewer: LeaseRenewer,
        queue: QueueRef,
        held: dict[str, Delivery],
        *,
        worker: str,
        lease: float,
        clock: Clock,
        cancel_requested: Callable[[Delivery], None],
        lost: Callable[[Delivery], None],
        failed: Callable[[BaseException], None],
        about: dict[str, object],
    ) -> None:
        self._renewer = renewer
        self._queue = queue
        self._held = held
        self._worker = worker
        self._lease = lease
        self._clock = clock
        self._margin = margin_of(lease)
        self._cancel_requested = cancel_requested
        self._lost = lost
        self._failed = failed
        self._about = about
        self._outage = StoreBackoff(_LOGGER, "renewing leases", about)
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
            async with asyncio.timeout(JOIN_TIMEOUT):
                await self._ended.wait()
        await self._renewer.leave()

    def holds(self, token: str) -> bool:
        """True for a lease that is held here, and renewed in time by the worker's own clock."""
        delivery = self._held.get(token)
        return delivery is not None and not delivery.lease.is_lost and self._clock() < delivery.lease.until

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
            self._post(self._ended.set)

    def fail(self, error: BaseException) -> None:
        """Tell the worker that its leases can no longer be renewed."""
        self._post(self._failed, error)

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
        first = self._clock() + self._lease / 3 * random.uniform(0.9, 1.0)
        store = await renewer.opened()
        await self._rest(max(0.0, first - self._clock()))
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
        now = self._clock()
        nearest = self._lease
        for delivery in self._held.copy().values():
            if not delivery.is_open or delivery.lease.is_lost:
                continue
            left = delivery.lease.until - self._margin - now
            if left > 0:
                nearest = min(nearest, left)
                continue
            self._lose(delivery, "lease not renewed in time: handler stopped")
        return nearest

    async def _renew(self, store: Store) -> None:
        self._fence()
        held = [delivery for delivery in self._held.copy().values() if not delivery.lease.is_lost]
        for start in range(0, len(held), CHUNK_JOBS):
            await self._beat(store, held[start : start + CHUNK_JOBS])
        sent = self.claim_sent
        if sent is not None and self._clock() - sent > self._lease / 4:
            await self._adopt(store)

    async def _beat(self, store: Store, held: list[Delivery]) -> None:
        sent = self._clock()
        beats = [Beat(delivery.job.id, delivery.token) for delivery in held]
        answers = await store.moves.heartbeat(self._queue, beats, self._lease_ms)
        for delivery, answer in zip(held, answers, strict=True):
            lease = delivery.lease
            if isinstance(answer, Applied):
                lease.until = max(lease.until, sent + self._lease)
                if answer.cancel_requested and not lease.is_cancel_reported:
                    lease.is_cancel_reported = True
                    self._post(self._cancel_requested, delivery)
            elif delivery.is_open and not lease.is_lost:
                # A job that was settled a moment ago is refused too: its delivery is not open any more.
                self._lose(delivery, "lease lost: handler stopped")

    def _lose(self, delivery: Delivery, message: str) -> None:
        delivery.lease.is_lost = True
        _LOGGER.warning(message, extra=about_job(self._about, delivery.job))
        self._post(self._lost, delivery)

    async def _adopt(self, store: Store) -> None:
        """Renew leases whose claim the held-up event loop has not seen the answer of."""
        leases = await store.reads.leases(self._queue, self._worker)
        unknown = [lease for lease in leases if lease.token not in self._held][:CHUNK_JOBS]
        if not unknown:
            return
        sent = self._clock()
        beats = [Beat(lease.id, lease.token) for lease in unknown]
        answers = await store.moves.heartbeat(self._queue, beats, self._lease_ms)
        for lease, answer in zip(unknown, answers, strict=True):
            if isinstance(answer, Applied):
                self.adopted[lease.token] = sent + self._lease

    @property
    def _lease_ms(self) -> int:
        return round(self._lease * 1000)

    def _post(self, what: Callable[..., Any], *args: object) -> None:
        # A closed event loop needs no message.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(what, *args)
