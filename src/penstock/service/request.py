"""A request as its handler sees it: principal, tenant, and the store behind it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar

from penstock.client.client import Client
from penstock.core.errors import PenstockError, UnknownQueueError
from penstock.core.job import QueueRef
from penstock.core.names import check_name
from penstock.service.admission import RequestSlot, admit_stream
from penstock.service.errors import ForbiddenError, MalformedError, UnauthenticatedError
from penstock.service.limits import Receive
from penstock.service.principal import Principal
from penstock.service.reserved_names import check_queue
from penstock.service.routing import Route
from penstock.service.yielding import Yielder
from penstock.stores.protocol import Store
from penstock.stores.values import EVERYONE, QueueInfo

if TYPE_CHECKING:
    from penstock.service.app import Service

T = TypeVar("T")
RECHECK: Final = 1.0
"""Seconds after which the token of a stream or long poll is looked at again."""


class Request:
    """A request whose token was accepted."""

    def __init__(
        self,
        service: "Service",
        route: Route,
        principal: Principal,
        headers: Mapping[str, str],
        receive: Receive,
        request_id: str,
    ) -> None:
        self.service = service
        self.route = route
        self.principal = principal
        self.headers = headers
        self.request_id = request_id
        self.over = asyncio.Event()
        """Set when the client went away, its token is no longer accepted or the service stops.

        Waits then end.
        """
        self.slot: RequestSlot | None = None
        """The slot that counts the request until it becomes a stream."""
        self.held_since = 0.0
        self.has_given_way = False
        """True when it was ended for a stream of another tenant: its client still waits for the answer."""
        self.yielder = Yielder()
        """Gives the event loop to other requests while a handler works for long."""
        self._receive = receive

    @property
    def store(self) -> Store:
        """The store of the service."""
        return self.service.store

    @property
    def tenant(self) -> str:
        """The tenant of the request; MalformedError for an operator that names no tenant."""
        if self.principal.tenant == EVERYONE:
            raise MalformedError("an operator says with the header Penstock-Tenant whom a request is for")
        return self.principal.tenant

    @property
    def client(self) -> Client:
        """The client that enqueues into the tenant's queues."""
        return self.service.client(self.tenant)

    def ref(self, queue: str) -> QueueRef:
        """A queue of the tenant by its name."""
        return QueueRef(self.tenant, check_name("queue", queue))

    def may(self, queue: str) -> bool:
        """True when the token allows what the route does in this queue."""
        verb = self.route.verb
        return verb is None or self.principal.may(verb, queue)

    def require(self, queue: str) -> None:
        """ForbiddenError unless the token allows this in the queue, and for the service's own queues."""
        check_queue(self.route.verb, queue)
        if not self.may(queue):
            raise ForbiddenError(f"{self.route.verb} in queue {queue!r} is not in the token's scopes")

    async def queue(self, name: str) -> QueueInfo:
        """A queue that is there; UnknownQueueError when the tenant has none of that name."""
        info = await self.store.queues.find_queue(self.ref(name))
        if info is None:
            raise UnknownQueueError(f"no queue {name!r}")
        return info

    async def queues(self) -> list[QueueInfo]:
        """All queues of the tenant that the token lets it see."""
        return [
            each for each in await self.store.queues.list_queues(self.tenant) if self.may(each.queue.name)
        ]

    @asynccontextmanager
    async def opening(self, queues: Iterable[str], tenant: str | None = None) -> AsyncIterator[list[str]]:
        """Room in the tenant's quota for those of these queues that are new, and that the block opens.

        Queues that were seen not long ago cost no call to the store.
        """
        quotas = self.service.quotas
        if quotas is None:
            yield []
            return
        owner = self.tenant if tenant is None else tenant
        known = self.service.known
        new = [name for name in dict.fromkeys(queues) if not await known.has(QueueRef(owner, name))]
        async with AsyncExitStack() as stack:
            if new:
                await stack.enter_async_context(quotas.opening(owner, new))
            yield new

    async def deleting(self, queue: QueueRef) -> None:
        """Before a queue is deleted: it counts in the tenant's quota until nobody takes it for known."""
        if self.service.quotas is not None and await self.store.queues.find_queue(queue) is not None:
            await self.service.quotas.deleting(queue)

    @asynccontextmanager
    async def enqueueing(self, payloads: Mapping[str, Sequence[int]]) -> AsyncIterator[None]:
        """Room in the tenant's quotas for jobs with payloads of these sizes, by queue; the block enqueues."""
        async with AsyncExitStack() as stack:
            if self.service.quotas is not None:
                await stack.enter_async_context(self.opening(payloads))

                async def pending() -> Mapping[str, int]:
                    return await self.service.backlogs.on_their_way(self.tenant)

                admitting = self.service.quotas.admitting(self.tenant, payloads, pending)
                await stack.enter_async_context(admitting)
            yield

    @asynccontextmanager
    async def redriving(self, queue: QueueRef, jobs: int) -> AsyncIterator[None]:
        """Admit jobs that wait once more to the tenant's quotas."""
        async with AsyncExitStack() as stack:
            if self.service.quotas is not None:
                again = self.service.quotas.admitting_again(queue.tenant, queue.name, jobs)
                await stack.enter_async_context(again)
            yield

    async def note(self, what: str, on: str, detail: str = "") -> None:
        """Write an administrative act down, where the service keeps a log of them."""
        if self.service.audit is not None:
            who = self.principal.subject
            await self.service.audit.note(who=who, what=what, on=on, tenant=self.tenant, detail=detail)

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Count the request among streams and long polls, and notice when the client goes away."""
        async with AsyncExitStack() as stack:
            if self.service.quotas is not None:
                await stack.enter_async_context(self.service.quotas.stream(self.principal.tenant))
            self._enter_streams()
            watches = [asyncio.create_task(self._watch()), asyncio.create_task(self._stay_known())]
            try:
                yield
            finally:
                self.service.waiting.discard(self)
                for watch in watches:
                    watch.cancel()
                await asyncio.gather(*watches, return_exceptions=True)

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """A turn among the tenant's requests, for a stream or long poll that looks into the store again.

        All that wait for one queue are notified together.
        """
        async with self.service.requests.turn(self.principal.tenant):
            yield

    async def until_over(self, work: Coroutine[Any, Any, T]) -> T | None:
        """The result of the work; None where the request is over before, which cancels the work."""
        task, over = asyncio.create_task(work), asyncio.create_task(self.over.wait())
        try:
            await asyncio.wait([task, over], return_when=asyncio.FIRST_COMPLETED)
            return task.result() if task.done() else None
        finally:
            for each in (task, over):
                each.cancel()
            await asyncio.gather(task, over, return_exceptions=True)

    def _enter_streams(self) -> None:
        limits, waiting = self.service.limits, self.service.waiting
        share = limits.streams_per_tenant if self.service.quotas is None else None
        if (ended := admit_stream(waiting, self, most=limits.streams, share=share)) is not None:
            waiting.discard(ended)
            ended.has_given_way = True
            ended.over.set()
        waiting.add(self)
        self.held_since = asyncio.get_running_loop().time()
        if self.slot is not None:
            self.slot.release()
        if self.service.is_stopping:
            self.over.set()

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.over.set()

    async def _stay_known(self) -> None:
        """End the wait once the token is revoked or has expired."""
        while True:
            await asyncio.sleep(RECHECK)
            try:
                await self.service.authenticator.authenticate(self.headers)
            except (UnauthenticatedError, ForbiddenError):
                self.over.set()
                return
            except PenstockError:
                # The store or the issuer cannot say it now: that is no reason to end.
                continue


async def unbroken(work: Awaitable[T]) -> T:
    """The answer of work that must not be cut off in the middle, as when it takes leases."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise
