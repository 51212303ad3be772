"""A message is brought as it was signed, and its answer decides what becomes of the delivery."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from penstock.core.errors import StoreUnavailableError, WrongStateError
from penstock.core.job import NewJob, QueueRef
from penstock.core.states import State
from penstock.service.egress.egress import Egress
from penstock.service.egress.policy import EgressPolicy
from penstock.service.webhooks.deliveries import Delivery, DeliveryLog
from penstock.service.webhooks.errors import WebhookNotFoundError
from penstock.service.webhooks.messages import QUEUE, TASK
from penstock.service.webhooks.signing import verify
from penstock.service.webhooks.webhook_service import WebhookService
from penstock.stores.memory import MemoryStore
from penstock.stores.protocol import Store
from penstock.tasks.call import Call
from penstock.tasks.options import JobOptions
from penstock.worker.worker import Worker
from tests.kit.intercepted import InterceptedStore
from tests.kit.waiting import until
from tests.service.egress.receiver import Receiver, Request
from tests.service.webhooks.kit import client, end, hooked, on_loopback


class Round:
    """A tenant with one webhook, its receiver, and a worker that delivers what is due."""

    def __init__(
        self, store: Store, office: WebhookService, receiver: Receiver, tenant: str, hook: str
    ) -> None:
        self.store = store
        self.office = office
        self.receiver = receiver
        self.tenant = tenant
        self.hook = hook
        self.log: DeliveryLog = office.log

    def answers(self, *statuses: int, more: str = "") -> None:
        """These in turn, the last one for ever."""
        rest = list(statuses)

        def answer(request: Request) -> bytes:
            status = rest.pop(0) if len(rest) > 1 else rest[0]
            return f"HTTP/1.1 {status} Said\r\n{more}\r\n".encode()

        self.receiver.answer = answer

    async def deliver(self) -> None:
        """One burst of a worker: all that is due."""
        queue = QueueRef(self.tenant, QUEUE)
        await Worker(self.store, queue, self.office.sender.registry(), burst=True, poll=0.01).run()

    async def ping(self) -> Delivery:
        """A message, and what became of it after one burst."""
        sent = await self.log.ping(self.tenant, self.hook)
        await self.deliver()
        return await self.log.get(self.tenant, sent.id)


@asynccontextmanager
async def a_round(store: Store, tenant: str = "t") -> AsyncIterator[Round]:
    async with hooked() as (egress, receiver, url):
        office = WebhookService(store, egress)
        hook = await office.repository.add(tenant, url)
        yield Round(store, office, receiver, tenant, hook.id)


async def test_a_delivery_that_an_earlier_version_stored_is_sent(store: Store, queue: QueueRef) -> None:
    async with a_round(store, queue.tenant) as here:
        payload = (
            b'{"parcel":{"webhook":"%s","message":"msg_1","type":"ping","body":"{}"}}' % here.hook.encode()
        )
        old = NewJob(id="old", nonce="n", task=TASK, payload=payload, key=here.hook)
        await here.log.ping(queue.tenant, here.hook)
        await store.moves.enqueue(QueueRef(queue.tenant, QUEUE), [old])
        await here.deliver()

        delivery = await here.log.get(queue.tenant, "old")

    assert (delivery.status, delivery.message) == (204, "msg_1")
    assert "msg_1" in [request.headers["webhook-id"] for request in here.receiver.requests]


async def test_a_message_is_signed_for_its_receiver(store: Store, queue: QueueRef) -> None:
    async with a_round(store, queue.tenant) as here:
        done = await here.ping()
        (request,) = here.receiver.requests
        (secret,) = (await here.office.repository.get(queue.tenant, here.hook)).keys(0)

    assert verify(secret, request.headers, request.body, now=time.time()) == done.message
    assert request.headers["content-type"] == "application/json"
    assert request.headers["user-agent"].startswith("penstock/")
    assert json.loads(request.body)["type"] == "webhook.ping"
    assert (done.state, done.status, done.attempts, done.body) == (
        State.COMPLETED,
        204,
        1,
        request.body.decode(),
    )


async def test_while_a_secret_is_replaced_both_sign(store: Store, queue: QueueRef) -> None:
    async with a_round(store, queue.tenant) as here:
        rotated = await here.office.repository.rotate(queue.tenant, here.hook)
        await here.ping()
        (request,) = here.receiver.requests

    for secret in rotated.keys(await store.clock.now()):
        verify(secret, request.headers, request.body, now=time.time())


@pytest.mark.parametrize("status", [301, 400, 404, 500, 503])
async def test_what_was_not_taken_is_tried_again(status: int) -> None:
    async with a_round(MemoryStore()) as here:
        here.answers(status, 200)
        first = await here.ping()
        await here.store.clock.advance_clock(5_000)
        await here.deliver()
        then = await here.log.get("t", first.id)

    assert (first.state, first.attempts, first.error) == (State.DELAYED, 1, f"the answer was {status}")
    assert first.next_at is not None
    assert (then.state, then.status) == (State.COMPLETED, 200)
    assert [(each.number, each.error) for each in then.tries] == [(1, f"the answer was {status}"), (2, None)]
    ids = {request.headers["webhook-id"] for request in here.receiver.requests}
    assert ids == {first.message}


async def test_a_wish_to_wait_is_granted() -> None:
    async with a_round(MemoryStore()) as here:
        here.answers(429, more="Retry-After: 3600\r\n")
        waiting = await here.ping()

    assert waiting.state is State.DELAYED
    assert waiting.next_at is not None
    assert waiting.next_at - await here.store.clock.now() > 3_500_000


async def test_what_nobody_takes_becomes_a_dead_letter_and_can_be_sent_again(
    store: Store, queue: QueueRef
) -> None:
    async with a_round(store, queue.tenant) as here:
        here.answers(500)
        sent = dead = await here.ping()
        for _ in range(9):
            assert dead.next_at is not None
            # No longer than it takes: events are kept for a week.
            await store.clock.advance_clock(dead.next_at - await store.clock.now())
            await here.deliver()
            dead = await here.log.get(queue.tenant, sent.id)
        here.answers(204)
        again = await here.log.redeliver(queue.tenant, sent.id)
        await here.deliver()
        then = await here.log.get(queue.tenant, sent.id)

    assert (dead.state, dead.attempts, dead.error) == (State.DEAD, 10, "the answer was 500")
    assert len(dead.tries) == 10
    assert again.id == sent.id
    assert (then.state, then.status) == (State.COMPLETED, 204)
    assert len({request.headers["webhook-id"] for request in here.receiver.requests}) == 1


async def test_a_webhook_that_is_gone_is_paused() -> None:
    async with a_round(MemoryStore()) as here:
        here.answers(410)
        done = await here.ping()
        hook = await here.office.repository.get("t", here.hook)

    assert (done.state, done.attempts, done.error) == (State.FAILED, 1, "the answer was 410")
    assert hook.paused is not None


async def test_for_a_paused_webhook_messages_wait() -> None:
    async with a_round(MemoryStore()) as here:
        await here.office.repository.change("t", here.hook, paused="maintenance")
        waiting = await here.ping()
        await here.office.repository.change("t", here.hook, paused=None)
        await here.store.clock.advance_clock(60_000)
        await here.deliver()
        then = await here.log.get("t", waiting.id)

    assert (waiting.state, waiting.attempts) == (State.DELAYED, 0)
    assert then.state is State.COMPLETED


async def test_messages_of_a_removed_webhook_are_cancelled() -> None:
    async with a_round(MemoryStore()) as here:
        sent = await here.log.ping("t", here.hook)
        await here.office.repository.remove("t", here.hook)
        await here.deliver()
        then = await here.log.get("t", sent.id)
        with pytest.raises(WebhookNotFoundError):
            await here.log.redeliver("t", sent.id)

    assert then.state is State.CANCELLED
    assert here.receiver.connections == 0


async def test_a_name_that_came_to_lead_inwards_ends_its_delivery() -> None:
    store = MemoryStore()
    office = WebhookService(store, Egress(EgressPolicy.of(), resolve=on_loopback))
    hook = await office.repository.add("t", "https://hooks.example/")
    sent = await office.log.ping("t", hook.id)

    await Worker(store, QueueRef("t", QUEUE), office.sender.registry(), burst=True).run()

    done = await office.log.get("t", sent.id)
    assert done.state is State.FAILED
    assert (
        done.error
        == "AddressRefusedError: hooks.example is not on the public internet: its address is loopback"
    )


async def test_a_receiver_that_is_away_is_tried_again() -> None:
    async with a_round(MemoryStore()) as here:
        here.receiver.answer = lambda request: b""
        sent = await here.ping()

    assert (sent.state, sent.error) == (State.DELAYED, "the connection was closed before an answer came")


async def test_what_was_taken_can_be_sent_again_under_its_own_id(store: Store, queue: QueueRef) -> None:
    async with a_round(store, queue.tenant) as here:
        first = await here.ping()
        again = await here.log.redeliver(queue.tenant, first.id)
        with pytest.raises(WrongStateError):
            await here.log.redeliver(queue.tenant, again.id)
        await here.deliver()

    assert again.id != first.id
    assert again.message == first.message
    assert [each.headers["webhook-id"] for each in here.receiver.requests] == [first.message] * 2


async def test_deliveries_are_listed_by_webhook_newest_first(store: Store, queue: QueueRef) -> None:
    async with a_round(store, queue.tenant) as here:
        other = await here.office.repository.add(queue.tenant, "http://hooks.example:9/")
        mine = [await here.log.ping(queue.tenant, here.hook) for _ in range(3)]
        theirs = await here.log.ping(queue.tenant, other.id)
        page = await here.log.listed(queue.tenant, here.hook, limit=2)
        found = list(page.deliveries)
        while page.next is not None:
            page = await here.log.listed(queue.tenant, here.hook, limit=2, after=page.next)
            found += page.deliveries

        assert {each.id for each in found} == {each.id for each in mine}
        everything = await here.log.listed(queue.tenant)
        assert {each.id for each in everything.deliveries} == {each.id for each in [*mine, theirs]}
        assert all(each.body == "" for each in everything.deliveries)
        assert (await here.log.listed(queue.tenant, states=[State.DEAD])).deliveries == []
        assert (await here.log.listed(f"{queue.tenant}-other")).deliveries == []
        with pytest.raises(WebhookNotFoundError):
            await here.log.get(f"{queue.tenant}-other", mine[0].id)


async def test_what_a_tenant_enqueues_there_itself_is_no_delivery() -> None:
    async with a_round(MemoryStore()) as here:
        sent = await here.ping()
        maker = client(here.store, "t")
        forged = []
        for task, payload in (
            ("penstock.webhook", b"{}"),
            ("penstock.webhook", b'{"message":{}}'),
            ("other", b"{}"),
        ):
            forged.append(await maker.send(_call(task, payload)))
        listed = await here.log.listed("t")
        for each in forged:
            with pytest.raises(WebhookNotFoundError):
                await here.log.get("t", each.id)

    assert [each.id for each in listed.deliveries] == [sent.id]


class Away(InterceptedStore):
    """Fails at the first looks for tenants, in a way that was not foreseen and in one that was."""

    def __init__(self) -> None:
        super().__init__()
        self.errors: list[Exception] = [RuntimeError("a bug"), StoreUnavailableError("away")]

    async def list_entries(self, *more: Any, **named: Any) -> Any:
        if self.errors:
            raise self.errors.pop(0)
        return await self.real.key_value.list_entries(*more, **named)


async def test_webhooks_go_on_after_the_store_failed(caplog: pytest.LogCaptureFixture) -> None:
    store = Away()
    async with hooked() as (egress, receiver, url):
        office = WebhookService(store, egress, poll=0.01)
        running = asyncio.create_task(office.run())
        await until(lambda: not store.errors)
        await office.repository.add("t", url)
        await end(store, QueueRef("t", "q"), "a")
        await receiver.arrived(1)
        running.cancel()
        await asyncio.wait([running])

    assert caplog.text.count("webhooks wait, will repeat") == 2


async def test_an_ending_is_delivered_with_everything_running(store: Store, queue: QueueRef) -> None:
    async with hooked() as (egress, receiver, url):
        office = WebhookService(store, egress, poll=0.05)
        running = asyncio.create_task(office.run())
        hook = await office.repository.add(queue.tenant, url, types=["job.completed"])
        for number in range(3):
            await end(store, queue, f"job-{number}")
        office.nudge()
        requests = await receiver.arrived(3)
        running.cancel()
        await asyncio.wait([running])

    (secret,) = hook.keys(0)
    for request in requests:
        verify(secret, request.headers, request.body, now=time.time())
    assert {json.loads(each.body)["data"]["job"] for each in requests} == {"job-0", "job-1", "job-2"}


def _call(task: str, payload: bytes) -> Any:
    options = JobOptions(key="k")
    return Call(task=task, queue=QUEUE, payload=payload, options=options, decode=lambda _: None)
