"""Holds tenants to their quotas, before anything is enqueued, scheduled or streamed."""

import time
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from typing import Final, Protocol, TypeVar

from penstock.core.errors import PayloadError
from penstock.core.job import QueueRef
from penstock.service.errors import QuotaError
from penstock.service.principal import Pending
from penstock.service.reserved_names import is_reserved
from penstock.service.tenants.queue_lengths import QueueLengths
from penstock.service.tenants.quota_repository import Quota, QuotaRepository
from penstock.service.tenants.rate_limiter import RateLimiter
from penstock.service.tenants.reservations import Reservations
from penstock.service.tenants.usage import Usage
from penstock.stores.protocol import HasClock, HasKeyValue, HasQueues, HasReads, HasSchedules
from penstock.stores.values import EVERYONE

KNOWN_SECONDS: Final = 2.0
"""How long a quota that was read is used: a change is felt by then."""
MOST_KNOWN: Final = 10_000
SCHEDULE_BYTES: Final = 16 << 20
"""The records of all schedules of a tenant: they are read together."""
_STREAMS_AGAIN: Final = 5.0
_REMOVED_AGAIN: Final = 60.0
K = TypeVar("K")
V = TypeVar("V")


class _Backend(HasKeyValue, HasClock, HasReads, HasSchedules, HasQueues, Protocol):
    """The parts of a store that this module uses."""


class StoredQuotas:
    """The quotas of a store. Every refusal is counted."""

    def __init__(
        self,
        store: _Backend,
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
        self._repository = QuotaRepository(store.key_value)
        self._rate_limiter = RateLimiter(store, clock=clock)
        self._known: dict[str, tuple[float, Quota]] = {}
        self._lengths = QueueLengths(store.reads, clock)
        self._reservations = Reservations(store)
        self._streams: dict[str, int] = {}

    async def check(self, tenant: str) -> int | None:
        """The bytes that a payload may have; QuotaError while the tenant's rate is used up."""
        quota = await self._quota(tenant)
        if quota.jobs_per_second is not None:
            try:
                await self._rate_limiter.check(tenant, quota.jobs_per_second)
            except QuotaError:
                # How many jobs the request has is not known before its body is read.
                self._usage.note(tenant, refused=1)
                raise
        return quota.payload_bytes

    @asynccontextmanager
    async def admitting(
        self, tenant: str, payloads: Mapping[str, Sequence[int]], pending: Pending | None = None
    ) -> AsyncIterator[None]:
        """Jobs that the block enqueues: the sizes of their payloads, by queue; QuotaError or PayloadError."""
        quota = await self._quota(tenant)
        jobs = sum(map(len, payloads.values()))
        async with AsyncExitStack() as stack:
            try:
                _check_payloads(payloads, quota.payload_bytes)
                if quota.queue_length is not None:
                    behind = {} if pending is None else await pending()
                    for queue, sizes in payloads.items():
                        entering = self._entering(
                            QueueRef(tenant, queue), len(sizes), quota.queue_length, behind.get(queue, 0)
                        )
                        await stack.enter_async_context(entering)
                if quota.jobs_per_second is not None:
                    await self._rate_limiter.take(tenant, quota.jobs_per_second, jobs)
            except (QuotaError, PayloadError):
                self._usage.note(tenant, refused=jobs)
                raise
            self._usage.note(tenant, jobs=jobs)
            yield

    async def admit(self, tenant: str, queue: str, *, jobs: int, largest: int) -> None:
        """So many jobs more in this queue, no payload above `largest` bytes; QuotaError or PayloadError."""
        async with self.admitting(tenant, {queue: [largest] * jobs}):
            return

    @asynccontextmanager
    async def admitting_again(self, tenant: str, queue: str, jobs: int) -> AsyncIterator[None]:
        """Jobs that ended and that the block lets wait in this queue once more."""
        most = (await self._quota(tenant)).queue_length
        async with AsyncExitStack() as stack:
            if most is not None:
                with self._counted(tenant, jobs):
                    await stack.enter_async_context(
                        self._entering(QueueRef(tenant, queue), jobs, most, pending=0)
                    )
            yield

    @asynccontextmanager
    async def adding_schedule(
        self,
        tenant: str,
        queue: str,
        name: str,
        payload: int,
        *,
        jobs: int = 0,
        moved_from: Collection[str] = (),
    ) -> AsyncIterator[None]:
        """A schedule, which the block puts; `jobs` of its instants have passed and fire at once."""
        quota = await self._quota(tenant)

        async def existing() -> set[str]:
            stored = await self._store.schedules.list_schedules(tenant)
            others = sum(len(each.body) for each in stored if (each.queue.name, each.name) != (queue, name))
            if others + payload > SCHEDULE_BYTES:
                found = f"{others} and {payload} more bytes of schedules"
                raise QuotaError.of("schedules", found, f"at most {SCHEDULE_BYTES} in all", _REMOVED_AGAIN)
            there = {f"{each.queue.name}/{each.name}" for each in stored}
            return there - {f"{each}/{name}" for each in moved_from}

        async with AsyncExitStack() as stack:
            if quota.schedules is not None:
                names = [f"{queue}/{name}"]
                with self._counted(tenant, 1):
                    await stack.enter_async_context(
                        self._reservations.reserve(tenant, "schedules", names, quota.schedules, existing)
                    )
            with self._counted(tenant, 1):
                _check_payloads({queue: [payload]}, quota.payload_bytes)
            await stack.enter_async_context(self.admitting(tenant, {queue: [payload] * jobs}))
            yield

    @asynccontextmanager
    async def opening(self, tenant: str, queues: Collection[str]) -> AsyncIterator[None]:
        """Queues that are not there yet, as far as is known, and that the block opens."""
        most = (await self._quota(tenant)).queues
        names = {name for name in queues if not is_reserved(name)}

        async def existing() -> set[str]:
            there = [info.queue.name for info in await self._store.queues.list_queues(tenant)]
            return {name for name in there if not is_reserved(name)}

        async with AsyncExitStack() as stack:
            if most is not None and names:
                with self._counted(tenant, 1):
                    await stack.enter_async_context(
                        self._reservations.reserve(tenant, "queues", names, most, existing)
                    )
            yield

    async def deleting(self, queue: QueueRef) -> None:
        """Before a queue is deleted: where their number is bounded, it counts for a while longer."""
        if (await self._quota(queue.tenant)).queues is not None and not is_reserved(queue.name):
            await self._reservations.removing(queue.tenant, "queues", queue.name)

    async def space(self, queue: QueueRef) -> int | None:
        """How many jobs of schedules this queue takes in now; None without a bound."""
        quota = await self._quota(queue.tenant)
        if quota.jobs_per_second is not None and not await self._rate_limiter.is_open(queue.tenant):
            return 0
        if quota.queue_length is None:
            return None
        return await self._lengths.space(queue, quota.queue_length)

    async def fired(self, queue: QueueRef, jobs: int) -> None:
        """So many jobs of schedules were taken in: they use the tenant's rate like all others."""
        quota = await self._quota(queue.tenant)
        self._usage.note(queue.tenant, jobs=jobs)
        self._lengths.add(queue, jobs)
        if quota.jobs_per_second is not None:
            with suppress(QuotaError):
                await self._rate_limiter.take(queue.tenant, quota.jobs_per_second, jobs)

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

    @asynccontextmanager
    async def _entering(self, queue: QueueRef, jobs: int, most: int, pending: int) -> AsyncIterator[None]:
        await self._lengths.enter(queue, jobs, most, pending)
        is_known = False
        try:
            yield
            is_known = True
        finally:
            self._lengths.entered(queue, jobs, is_known=is_known)

    @contextmanager
    def _counted(self, tenant: str, many: int) -> Iterator[None]:
        """Count a refusal in the tenant's usage."""
        try:
            yield
        except (QuotaError, PayloadError):
            self._usage.note(tenant, refused=many)
            raise

    async def _quota(self, tenant: str) -> Quota:
        if tenant == EVERYONE:
            # An operator that acts for all of its tenants: it only claims, and waits for work.
            return Quota()
        until, quota = self._known.get(tenant, (0.0, Quota()))
        if self._clock() >= until:
            quota = await self._repository.of(tenant)
            _remember(self._known, tenant, (self._clock() + KNOWN_SECONDS, quota))
        return quota


def _check_payloads(payloads: Mapping[str, Sequence[int]], most: int | None) -> None:
    largest = max((size for sizes in payloads.values() for size in sizes), default=0)
    if most is not None and largest > most:
        raise PayloadError("payload", f"{largest} bytes", f"at most {most}, the tenant's quota")


def _remember(known: dict[K, V], name: K, value: V) -> None:
    known.pop(name, None)
    if len(known) >= MOST_KNOWN:
        del known[next(iter(known))]
    known[name] = value
