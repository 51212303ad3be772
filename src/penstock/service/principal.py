"""Principals, authenticators and quotas, as the routes use them."""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from enum import StrEnum
from typing import Protocol

from penstock.core.job import QueueRef
from penstock.service.errors import ForbiddenError

Pending = Callable[[], Awaitable[Mapping[str, int]]]


class Verb(StrEnum):
    """What a token can allow, for all queues or some."""

    READ = "read"
    """Look at jobs, queues, schedules and events."""
    ENQUEUE = "enqueue"
    """Create jobs and flows."""
    WORK = "work"
    """Claim jobs, renew leases, settle."""
    MANAGE = "manage"
    """Declare, pause, purge and delete queues; cancel, retry, redrive; schedules and webhooks."""
    STORE = "store"
    """Speak the whole protocol of a store, for the tenant's own clients and workers."""


class Principal(Protocol):
    """The holder of an accepted token."""

    @property
    def tenant(self) -> str:
        """The tenant whose queues these are; every name in a request belongs to this tenant."""
        ...

    @property
    def subject(self) -> str:
        """The name of the holder, for logs and as the author of a pause."""
        ...

    @property
    def tenants(self) -> tuple[str, ...]:
        """For an operator, all tenants that it may claim for; else empty."""
        ...

    def may(self, verb: str, queue: str | None = None) -> bool:
        """True when the principal may do this in the queue; without a queue, when it may in some queue."""
        ...

    def acting_for(self, tenant: str) -> "Principal":
        """The principal restricted to one of its tenants; ForbiddenError for any other tenant."""
        ...


class Authenticator(Protocol):
    """Finds the principal of a request."""

    async def authenticate(self, headers: Mapping[str, str]) -> Principal:
        """The principal of these headers, whose names are in small letters.

        UnauthenticatedError without one.
        """
        ...


class AuditLog(Protocol):
    """Keeps administrative acts."""

    async def note(self, *, who: str, what: str, on: str, tenant: str, detail: str) -> object:
        """Write an act down, after it was done."""
        ...


class Quotas(Protocol):
    """What a tenant may use. QuotaError says when to come back."""

    async def check(self, tenant: str) -> int | None:
        """QuotaError when the tenant may enqueue nothing now; else the bytes that a payload may have.

        None stands for no bound.
        """
        ...

    def admitting(
        self, tenant: str, payloads: Mapping[str, Sequence[int]], pending: Pending | None = None
    ) -> AbstractAsyncContextManager[None]:
        """Jobs that the block enqueues: the sizes of their payloads, by queue.

        `pending` says, if it matters, how many jobs are on their way into each queue as relay entries.
        """
        ...

    def admitting_again(self, tenant: str, queue: str, jobs: int) -> AbstractAsyncContextManager[None]:
        """Jobs that ended and that the block lets wait in this queue once more."""
        ...

    def adding_schedule(
        self,
        tenant: str,
        queue: str,
        name: str,
        payload: int,
        *,
        jobs: int = 0,
        moved_from: Collection[str] = (),
    ) -> AbstractAsyncContextManager[None]:
        """A schedule, which the block puts; `jobs` of its instants have passed and fire at once.

        In the queues that it is moved from the block removes it.
        """
        ...

    def opening(self, tenant: str, queues: Collection[str]) -> AbstractAsyncContextManager[None]:
        """Queues that are not there yet, as far as is known, and that the block opens."""
        ...

    async def deleting(self, queue: QueueRef) -> None:
        """Before a queue is deleted: a process that knows it could open it again unasked."""
        ...

    def stream(self, tenant: str) -> AbstractAsyncContextManager[None]:
        """One stream or long poll, held for the time of the block."""
        ...


class AnonymousPrincipal:
    """The principal of a request that needs no token."""

    tenant = ""
    subject = ""
    tenants: tuple[str, ...] = ()

    def may(self, verb: str, queue: str | None = None) -> bool:
        """False: a request without a token may do nothing that needs one."""
        return False

    def acting_for(self, tenant: str) -> "Principal":
        """ForbiddenError: there is no tenant to act for."""
        raise ForbiddenError("there is no token")
