"""Forwards events of tenants with webhooks: each ending becomes deliveries."""

import logging
from collections import defaultdict
from collections.abc import Sequence
from typing import Final

from penstock.client.client import Client
from penstock.client.retrying import RetryingCaller
from penstock.core.errors import CursorLostError, PenstockError
from penstock.core.events import Event
from penstock.core.flows import Child, ChildPolicy
from penstock.core.job import QueueRef
from penstock.core.repeated_failures import RepeatedFailures
from penstock.service.reserved_names import PREFIX
from penstock.service.webhooks.endpoint import Endpoint
from penstock.service.webhooks.messages import (
    DECLARATION,
    QUEUE,
    WebhookMessage,
    about_batch,
    about_job,
    call_for,
    is_ending,
)
from penstock.service.webhooks.repository import WebhookRepository
from penstock.stores.bounds import READER_LEASE_MS
from penstock.stores.portions import slim_jobs
from penstock.stores.protocol import Store
from penstock.stores.values import Reader

_LOGGER: Final = logging.getLogger("penstock.webhooks")
READER: Final = PREFIX + "webhooks"
PAGE: Final = 500
"""Events read at a time."""
RETRY_SECONDS: Final = 2.0
"""Seconds that a tenant's deliveries wait for a store that is away; the next round tries again."""
ROUNDS: Final = 20
"""Pages of one queue in one round; others have their turn then."""


class WebhookForwarder:
    """Carries on where the registered reader of each queue stands, which moves once deliveries are in.

    A crash between the two reads the same events again and makes the same deliveries, which the store has
    already. So may any number of relays at once.
    """

    def __init__(self, store: Store, repository: WebhookRepository) -> None:
        self._store = store
        self._repository = repository
        self._clients: dict[str, Client] = {}
        self._failing: defaultdict[str, RepeatedFailures] = defaultdict(RepeatedFailures)

    async def close(self) -> None:
        """Wait for what is on its way; the store stays open."""
        for client in self._clients.values():
            await client.close()

    def client(self, tenant: str) -> Client:
        """The client that enqueues deliveries of a tenant."""
        if tenant not in self._clients:
            retrying = RetryingCaller(retry_timeout=RETRY_SECONDS)
            self._clients[tenant] = Client(
                self._store, tenant=tenant, declared={QUEUE: DECLARATION}, retrying=retrying
            )
        return self._clients[tenant]

    async def tick(self) -> list[str]:
        """One round over all tenants that have webhooks, by name; a tenant that fails keeps no other out."""
        found = await self._repository.tenants()
        for tenant, version in found.items():
            try:
                await self._serve(tenant, version)
            except PenstockError as error:
                if self._failing[tenant].is_new(error):
                    _LOGGER.warning("webhooks wait, will repeat: %s", error, extra={"tenant": tenant})
            except Exception as error:
                if self._failing[tenant].is_new(error):
                    _LOGGER.exception("webhooks wait, will repeat", extra={"tenant": tenant})
            else:
                if self._failing.pop(tenant, None):
                    _LOGGER.info("webhooks go on", extra={"tenant": tenant})
        return list(found)

    async def _serve(self, tenant: str, version: int) -> None:
        endpoints = await self._repository.all(tenant)
        for info in await self._store.queues.list_queues(tenant):
            if info.queue.name == QUEUE:
                continue
            if not endpoints:
                await self._store.readers.unregister_reader(info.queue, READER)
                continue
            for _ in range(ROUNDS):
                if not await self._follow(info.queue, endpoints):
                    break
        if not endpoints:
            await self._repository.forget(tenant, version)

    async def _follow(self, queue: QueueRef, endpoints: Sequence[Endpoint]) -> bool:
        """One page of a queue's events; True when there may be more."""
        reader, events = await self._next(queue, endpoints)
        messages = await self._messages(queue, [each for each in events if is_ending(each)], endpoints)
        if messages:
            calls = [call_for(each) for each in messages]
            for outcome in await self.client(queue.tenant).send_many(calls):
                if isinstance(outcome, PenstockError):
                    # The reader stays: what was taken in is found again.
                    raise outcome
        if events:
            await self._store.readers.register_reader(queue, READER, events[-1].cursor)
        elif reader is not None and reader.kept_until - await self._store.clock.now() < READER_LEASE_MS // 2:
            await self._store.readers.register_reader(queue, READER, reader.cursor)
        return len(events) == PAGE

    async def _next(
        self, queue: QueueRef, endpoints: Sequence[Endpoint]
    ) -> tuple[Reader | None, list[Event]]:
        reader = next(
            (each for each in await self._store.readers.list_readers(queue) if each.name == READER), None
        )
        if reader is not None:
            place = reader.cursor
        else:
            place = await self._store.events.cursor_at(queue, min(each.made_at for each in endpoints))
        try:
            return reader, await self._store.events.read_events(queue, place, PAGE)
        except CursorLostError as lost:
            # Better the rest than nothing; what is gone is said.
            _LOGGER.warning("endings may be told to no webhook: %s", lost, extra={"queue": str(queue)})
            first, _ = await self._store.events.event_range(queue)
            return reader, await self._store.events.read_events(queue, first - 1, PAGE)

    async def _messages(
        self, queue: QueueRef, endings: Sequence[Event], endpoints: Sequence[Endpoint]
    ) -> list[WebhookMessage]:
        asked = [each for each in endings if _asking(endpoints, each, "batch")]
        batches = await self._batches(queue, asked)
        out: list[WebhookMessage] = []
        for event in endings:
            out += [about_job(event, each) for each in _asking(endpoints, event, "job")]
            if event.job in batches:
                children = batches[event.job]
                out += [about_batch(event, each, children) for each in _asking(endpoints, event, "batch")]
        return out

    async def _batches(self, queue: QueueRef, endings: Sequence[Event]) -> dict[str | None, list[Child]]:
        """The jobs of the batches that some of these are the end of, by the job at the end."""
        jobs = await slim_jobs(self._store.reads, queue, [str(each.job) for each in endings])
        last = [job.id for job in jobs if job is not None and job.child_policy is ChildPolicy.IGNORE]
        found = {job: await self._store.flows.children(queue, job, results=False) for job in last}
        return {job: children for job, children in found.items() if children}


def _asking(endpoints: Sequence[Endpoint], event: Event, about: str) -> list[Endpoint]:
    """The webhooks that existed when the job ended and want a message about it."""
    kind = f"{about}.{event.target}"
    return [each for each in endpoints if event.at >= each.made_at and each.wants(kind, event.queue)]
