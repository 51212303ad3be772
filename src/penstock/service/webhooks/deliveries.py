"""The delivery log, read from the queue of webhooks and its events."""

from collections.abc import Iterable
from contextlib import suppress
from typing import Final

import msgspec

from penstock.client.client import Client
from penstock.core.errors import CursorLostError, OptionError, WrongStateError
from penstock.core.events import Event, first_line
from penstock.core.job import Job, QueueRef
from penstock.core.moves import Move
from penstock.core.names import check_name
from penstock.core.outcomes import Refused
from penstock.core.states import REDRIVABLE, State
from penstock.service.webhooks.errors import WebhookNotFoundError
from penstock.service.webhooks.messages import (
    DECLARATION,
    QUEUE,
    TASK,
    Taken,
    WebhookMessage,
    about_nothing,
    call_for,
)
from penstock.service.webhooks.repository import WebhookRepository
from penstock.stores.protocol import Store
from penstock.stores.values import Query

PAGES: Final = 20
"""Pages that are looked through for deliveries of one webhook, before the caller is asked to go on."""
EVENT_PAGES: Final = 10
MOST_LISTED: Final = 1_000
_RESULT: Final = msgspec.json.Decoder(Taken)
_PAYLOAD: Final = msgspec.json.Decoder(dict[str, WebhookMessage])
_TRIED: Final = frozenset({State.COMPLETED, State.FAILED})
"""Endings by an attempt that the job does not count, as it used up none."""
_ENDS: Final = frozenset({Move.COMPLETE, Move.FAIL, Move.RETRY, Move.BURY, Move.EXPIRE})


class Attempt(msgspec.Struct, frozen=True, omit_defaults=True):
    """An attempt: when it ended, and its error if it failed. Times are Unix milliseconds."""

    number: int
    at: int
    error: str | None = None


class Delivery(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A message on its way to one webhook, or what became of it; `status` is of the answer that took it."""

    id: str
    webhook: str
    message: str
    type: str
    state: State
    attempts: int
    made_at: int
    next_at: int | None = None
    ended_at: int | None = None
    status: int | None = None
    error: str | None = None
    body: str = ""
    tries: tuple[Attempt, ...] = ()


class DeliveryPage(msgspec.Struct, frozen=True):
    """Some deliveries, newest first, and where the next ones begin; None at the end."""

    deliveries: list[Delivery]
    next: str | None = None


class DeliveryLog:
    """The deliveries of tenants. `listed` leaves out bodies and single attempts."""

    def __init__(self, store: Store, repository: WebhookRepository) -> None:
        self._store = store
        self._repository = repository

    async def listed(
        self,
        tenant: str,
        webhook: str | None = None,
        *,
        states: Iterable[State] = (),
        after: str | None = None,
        limit: int = 50,
    ) -> DeliveryPage:
        """Deliveries, of one webhook if it is named; a page may be shorter than `limit` before the end."""
        if not 1 <= limit <= MOST_LISTED:
            raise OptionError("limit", limit, f"a whole number from 1 to {MOST_LISTED}")
        found: list[Delivery] = []
        queue = _queue(tenant)
        if await self._store.queues.find_queue(queue) is None:
            return DeliveryPage(found)
        for _ in range(PAGES):
            query = Query(states=frozenset(states), task=TASK, limit=limit, after=after)
            page = await self._store.reads.find(queue, query)
            after = page.next
            found = [_delivery(job) for job in page.jobs if webhook in (None, job.key) and _is_ours(job)]
            if found or after is None:
                break
        return DeliveryPage(found, after)

    async def get(self, tenant: str, delivery: str) -> Delivery:
        """A delivery with its body and its attempts; WebhookNotFoundError when there is none."""
        job = await self._job(tenant, delivery)
        tries = [attempt for event in await self._events(job) if (attempt := _attempt(event)) is not None]
        return msgspec.structs.replace(_delivery(job, with_body=True), tries=tuple(tries))

    async def ping(self, tenant: str, webhook: str) -> Delivery:
        """Send a test message."""
        endpoint = await self._repository.get(tenant, webhook)
        return await self._sent(
            tenant, about_nothing(endpoint, tenant, await self._store.clock.now()), again=False
        )

    async def redeliver(self, tenant: str, delivery: str) -> Delivery:
        """Send a message again, under its own id: WrongStateError while it is still on its way."""
        job = await self._job(tenant, delivery)
        message = _message(job)
        await self._repository.get(tenant, message.webhook)
        if job.state is State.COMPLETED:
            return await self._sent(tenant, message, again=True)
        answer: object = None
        if job.state in REDRIVABLE:
            (answer,) = await self._store.moves.redrive(job.ref, [job.id])
        if answer is None or isinstance(answer, Refused):
            raise WrongStateError(f"delivery {delivery} is {job.state}: it is still on its way")
        return _delivery(await self._job(tenant, delivery))

    async def _sent(self, tenant: str, message: WebhookMessage, *, again: bool) -> Delivery:
        client = Client(self._store, tenant=tenant, declared={QUEUE: DECLARATION})
        handle = await client.send(call_for(message, again=again))
        return _delivery(await client.job(QUEUE, handle.id))

    async def _job(self, tenant: str, delivery: str) -> Job:
        (job,) = await self._store.reads.get(_queue(tenant), [check_name("delivery", delivery)])
        if job is None or not _is_ours(job):
            raise WebhookNotFoundError(f"no delivery {delivery!r}")
        return job

    async def _events(self, job: Job) -> list[Event]:
        """What the log still has of this job, as far as it is looked through."""
        after = await self._store.events.cursor_at(job.ref, job.enqueued_at)
        found: list[Event] = []
        # Trimmed in the meantime: then there is no more to tell.
        with suppress(CursorLostError):
            for _ in range(EVENT_PAGES):
                page = await self._store.events.read_events(job.ref, after)
                found += [event for event in page if event.job == job.id]
                if not page or (job.version in {event.version for event in found}):
                    break
                after = page[-1].cursor
        return found


def _queue(tenant: str) -> QueueRef:
    return QueueRef(tenant, QUEUE)


def _is_ours(job: Job) -> bool:
    """False for what a tenant enqueued there by itself, and that is no delivery."""
    try:
        return job.task == TASK and _message(job).webhook == job.key
    except (msgspec.DecodeError, ValueError):
        return False


def _message(job: Job) -> WebhookMessage:
    (message,) = _PAYLOAD.decode(job.payload).values()
    return message


def _status(job: Job) -> int | None:
    # A worker of the tenant's may have completed it with anything.
    with suppress(msgspec.DecodeError):
        return None if job.result is None else _RESULT.decode(job.result).status
    return None


def _delivery(job: Job, *, with_body: bool = False) -> Delivery:
    message = _message(job)
    return Delivery(
        id=job.id,
        webhook=message.webhook,
        message=message.id,
        type=message.type,
        state=job.state,
        attempts=job.attempts + (job.state in _TRIED),
        made_at=job.enqueued_at,
        next_at=job.visible_at if job.state is State.DELAYED else None,
        ended_at=job.ended_at,
        status=_status(job),
        error=_said(job.error),
        body=message.body if with_body else "",
    )


def _attempt(event: Event) -> Attempt | None:
    if event.move not in _ENDS or event.attempt is None:
        return None
    return Attempt(event.attempt, event.at, _said(event.error) or event.reason)


def _said(error: str | None) -> str | None:
    """The first line of an error, without the name of its class."""
    line = first_line(error)
    return None if line is None else line.removeprefix("EgressError: ").removeprefix("Retry: ")
