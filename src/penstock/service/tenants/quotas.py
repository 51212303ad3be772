"""Holds tenants to their quotas, before anything is enqueued, scheduled or streamed."""

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final, Protocol, TypeVar

from penstock.core.errors import PayloadError
from penstock.core.job import QueueRef
from penstock.core.states import WAITING
from penstock.service.errors import QuotaError
from penstock.service.tenants.book import Quota, QuotaBook
from penstock.service.tenants.pace import Pace
from penstock.service.tenants.usage import Usage
from penstock.stores.protocol import Clock, Reads, Schedules, Shelves
from penstock.stores.values import EVERYONE

KNOWN_SECONDS: Final = 2.0
"""How long a quota that was read is used: a change is felt by then."""
COUNTED_SECONDS: Final = 1.0
"""How long a count of a queue is used; what is enqueued here meanwhile is added to it."""
MOST_KNOWN: Final = 10_000
_FULL_AGAIN: Final = 1.0
_SCHEDULES_AGAIN: Final = 60.0
_STREAMS_AGAIN: Final = 5.0
K = TypeVar("K")
V = TypeVar("V")


class _Place(Shelves, Clock, Reads, Schedules, Protocol):
    """What is needed of a store."""


class StoredQuotas:
    """The quotas of a store. Every refusal is counted."""

    def __init__(
        self,
        store: _Place,
        usage: Usage | None = None,
        *,
        streams: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`streams` bounds tenants whose quota says nothing of streams."""
        self._unset_streams = streams
        self._store = store
        self._usage = usage or Usage(store)
        self._clock = clock
        self._book = QuotaBook(store)
        self._pace = Pace(store, clock=clock)
        self._known: dict[str, tuple[float, Quota]] = {}
        self._lengths: dict[QueueRef, tuple[float, int]] = {}
        self._streams: dict[str, int] = {}

    async def check(self, tenant: str) -> int | None:
        """The bytes that a payload may have; QuotaError while the tenant's rate is used up."""
        quota = await self._quota(tenant)
        if quota.jobs_per_second is not None:
            try:
                await self._pace.check(tenant, quota.jobs_per_second)
            except QuotaError:
                # How many jobs the request has is not known before its body is read.
                self._usage.note(tenant, refused=1)
                raise
        return quota.payload_bytes

    async def admit(self, tenant: str, queue: str, *, jobs: int, largest: int) -> None:
        """So many jobs more in this queue, no payload above `largest` bytes; QuotaError or PayloadError."""
        quota = await self._quota(tenant)
        try:
            if quota.payload_bytes is not None and largest > quota.payload_bytes:
                raise PayloadError(
                    "payload", f"{largest} bytes", f"at most {quota.payload_bytes}, the tenant's quota"
                )
            if quota.queue_length is not None and jobs:
                await self._check_length(QueueRef(tenant, queue), jobs, quota.queue_length)
            if quota.jobs_per_second is not None:
                await self._pace.take(tenant, quota.jobs_per_second, jobs)
        except (QuotaError, PayloadError):
            self._usage.note(tenant, refused=jobs)
            raise
        self._usage.note(tenant, jobs=jobs)

    async def admit_schedule(self, tenant: str) -> None:
        """One schedule more."""
        most = (await self._quota(tenant)).schedules
        if most is not None and len(await self._store.schedules(tenant)) >= most:
            self._usage.note(tenant, refused=1)
            raise QuotaError(f"schedules: the tenant may have {most}", _SCHEDULES_AGAIN)

    @asynccontextmanager
    async def stream(self, tenant: str) -> AsyncIterator[None]:
        """One stream or long poll, held for the time of the block."""
        most = (await self._quota(tenant)).streams
        if most is None and tenant != EVERYONE:
            most = self._unset_streams
        held = self._streams.get(tenant, 0)
        if most is not None and held >= most:
            self._usage.note(tenant, refused=1)
            raise QuotaError(f"streams: the tenant may hold {most} at a time", _STREAMS_AGAIN)
        self._streams[tenant] = held + 1
        try:
            yield
        finally:
            self._streams[tenant] -= 1
            if not self._streams[tenant]:
                del self._streams[tenant]

    async def _check_length(self, queue: QueueRef, jobs: int, most: int) -> None:
        until, waiting = self._lengths.get(queue, (0.0, 0))
        if self._clock() >= until or waiting + jobs > most:
            # Nobody is refused by an old count: workers may have made room.
            counts = await self._store.counts(queue)
            until, waiting = self._clock() + COUNTED_SECONDS, sum(counts[state] for state in WAITING)
        if waiting + jobs > most:
            raise QuotaError(
                f"queue_length: {waiting} jobs wait in queue {queue.name} of at most {most}", _FULL_AGAIN
            )
        _remember(self._lengths, queue, (until, waiting + jobs))

    async def _quota(self, tenant: str) -> Quota:
        if tenant == EVERYONE:
            # An operator that acts for all of its tenants: it only claims, and waits for work.
            return Quota()
        until, quota = self._known.get(tenant, (0.0, Quota()))
        if self._clock() >= until:
            quota = await self._book.of(tenant)
            _remember(self._known, tenant, (self._clock() + KNOWN_SECONDS, quota))
        return quota


def _remember(known: dict[K, V], name: K, value: V) -> None:
    known.pop(name, None)
    if len(known) >= MOST_KNOWN:
        del known[next(iter(known))]
    known[name] = value
