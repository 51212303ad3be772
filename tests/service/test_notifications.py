"""Streams of notifications: what many of them cost, and how many topics a tenant has."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import msgspec
import pytest

from penstock.core.job import NewJob, QueueRef
from penstock.service import shared_subscriptions
from penstock.service.app import Service
from penstock.service.limits import Limits
from penstock.stores.protocol import Subscription
from penstock.stores.values import Topic
from tests.kit.intercepted import InterceptedStore
from tests.kit.waiting import until
from tests.service.kit import HeaderAuthenticator, client_of
from tests.service.test_events import streaming

STREAMS = 20
SUBSCRIPTIONS = "/v1/store/subscriptions"
NOT_AT_ALL = 60.0
JOB = NewJob(id="j", nonce="n", task="t", payload=b"{}")


class CountingStore(InterceptedStore):
    """Counts subscriptions that are open at a time, and can end those of one queue."""

    def __init__(self) -> None:
        super().__init__()
        self.listeners: Counter[str] = Counter()
        self.broken = ""

    @asynccontextmanager
    async def subscribe(self, queue: QueueRef, topic: Topic) -> AsyncIterator[Subscription]:
        self.listeners[queue.name] += 1
        try:
            async with self.real.notifier.subscribe(queue, topic) as subscription:
                if queue.name == self.broken:
                    raise ConnectionError("the server went away")
                yield subscription
        finally:
            self.listeners[queue.name] -= 1


def wanted(*queues: str, tenant: str = "acme", topics: Sequence[str] = ("ready",)) -> bytes:
    """The body of a request to subscribe."""
    return msgspec.msgpack.encode(
        {"tenant": tenant, "topics": [[queue, topic] for queue in queues for topic in topics]}
    )


def subscribing(service: Service, body: bytes, tenant: str = "acme") -> Any:
    return streaming(service, SUBSCRIPTIONS, method="POST", body=body, **{"x-tenant": tenant})


async def said(pieces: Any) -> list[Any]:
    """The lines of the next piece that has some."""
    while True:
        lines = (await pieces.get()).get("body", b"").split(b"\n")
        if found := [msgspec.json.decode(line) for line in lines if line]:
            return found


async def status_of(service: Service, body: bytes, tenant: str = "acme") -> int:
    async with subscribing(service, body, tenant) as pieces:
        return int((await pieces.get())["status"])


async def test_streams_share_one_listener_for_a_topic() -> None:
    """One tenant holds hundreds of streams, each with hundreds of topics."""
    store = CountingStore()
    service = Service(store, authenticator=HeaderAuthenticator())
    body = wanted("a", "b")
    async with service, AsyncExitStack() as stack:
        streams = [await stack.enter_async_context(subscribing(service, body)) for _ in range(STREAMS)]
        first = [await said(pieces) for pieces in streams]
        listeners = dict(store.listeners)
        await store.moves.enqueue(QueueRef("acme", "b"), [JOB])
        told = [await said(pieces) for pieces in streams]
        await stack.aclose()
        await until(lambda: not store.listeners.total())

    assert first == [[None]] * STREAMS
    assert listeners == {"a": 1, "b": 1}
    assert told == [[["b", "ready"]]] * STREAMS


async def test_notifications_that_wait_are_sent_together() -> None:
    store = CountingStore()
    service = Service(store, authenticator=HeaderAuthenticator())
    names = [f"q{number}" for number in range(100)]
    async with service, subscribing(service, wanted(*names)) as pieces:
        await said(pieces)
        for name in names:
            await store.queues.open_queue(QueueRef("acme", name))
        await store.clock.advance_clock(1)
        told = await said(pieces)

    assert sorted(told) == sorted([name, "ready"] for name in names)


@pytest.mark.parametrize(("bound", "most"), [("MOST_TOPICS", 3), ("MOST_SUBSCRIBED", 4)])
async def test_the_streams_of_a_tenant_have_so_many_topics(
    bound: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_subscriptions, bound, most)
    service = Service(CountingStore(), authenticator=HeaderAuthenticator())
    async with service:
        async with subscribing(service, wanted("a", "b")) as pieces:
            await said(pieces)
            fits = await status_of(service, wanted("b", "b", "c"))
            refused = await status_of(service, wanted("c", "d", "e"))
            other = await status_of(service, wanted("c", "d", "e", tenant="other"), "other")
        again = await status_of(service, wanted("c", "d", "e"))

    assert (fits, refused, other, again) == (200, 429, 200, 200)


async def test_a_listener_that_fails_ends_its_streams_and_no_others() -> None:
    """Their clients subscribe anew."""
    store = CountingStore()
    service = Service(store, authenticator=HeaderAuthenticator())
    async with service, subscribing(service, wanted("b")) as pieces:
        await said(pieces)
        store.broken = "a"
        async with subscribing(service, wanted("a", "b")) as ended:
            while (await ended.get()).get("body") != b"":
                pass
        store.broken = ""
        async with subscribing(service, wanted("a")) as anew:
            stands = await said(anew)
        await store.clock.advance_clock(1)
        told = await said(pieces)

    assert (stands, told) == ([None], [["b", "ready"]])


class BusyStore(InterceptedStore):
    """Counts the claims and reads of events that run at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.running = self.most = self.looks = 0

    async def _look(self, work: Any) -> Any:
        self.running += 1
        self.looks += 1
        self.most = max(self.most, self.running)
        try:
            # As long as others have something to do.
            for _ in range(50):
                await asyncio.sleep(0)
            return await work
        finally:
            self.running -= 1

    async def claim(self, *args: Any, **given: Any) -> Any:
        return await self._look(self.real.moves.claim(*args, **given))

    async def read_events(self, *args: Any, **given: Any) -> Any:
        return await self._look(self.real.events.read_events(*args, **given))


@pytest.mark.parametrize("kind", ["claims", "events"])
async def test_long_polls_that_are_notified_together_take_turns(kind: str) -> None:
    """A notification is for all that wait at the queue: only so many of a tenant look at a time."""
    store = BusyStore()
    service = Service(store, authenticator=HeaderAuthenticator(), limits=Limits(concurrent_requests=3))
    async with service, client_of(service) as client:
        await store.queues.open_queue(QueueRef("acme", "mail"))
        if kind == "claims":
            body = {"worker": "w", "wait": NOT_AT_ALL}
            polls = [client.post("/v1/queues/mail/claims", json=body) for _ in range(STREAMS)]
        else:
            path = f"/v1/queues/mail/events?wait={NOT_AT_ALL:.0f}"
            polls = [client.get(path) for _ in range(STREAMS)]
        waiting = [asyncio.create_task(poll) for poll in polls]
        await until(lambda: len(service.waiting) == STREAMS and not store.running)
        store.most, looks = 0, store.looks
        await store.moves.enqueue(
            QueueRef("acme", "mail"), [NewJob(id="j", nonce="n", task="t", payload=b"{}")]
        )
        await until(lambda: store.looks >= looks + STREAMS)
        service.stop()
        answers = await asyncio.gather(*waiting)

    assert {answer.status_code for answer in answers} == {200}
    assert store.most <= 3
