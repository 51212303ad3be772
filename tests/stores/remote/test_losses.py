"""A service that goes away and comes back: subscriptions, calls and a worker go on."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator

import pytest

from penstock import Penstock
from penstock.core.errors import StoreUnavailableError
from penstock.core.job import QueueRef
from penstock.service.app import Service
from penstock.service.auth.authenticator import authenticator_of
from penstock.service.request import Request
from penstock.service.server import Server, listen
from penstock.stores.memory import MemoryStore
from penstock.stores.values import Topic
from penstock.testing.conformance.arrange import new_job
from tests.kit.service import KEY, token
from tests.kit.subscriptions import drain_notifications
from tests.kit.waiting import PATIENCE
from tests.stores.remote.kit import opened

QUEUE = QueueRef("acme", "mail")


class Deaf(Server):
    """Hears no signals, which are the test run's."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """None."""
        yield


@contextlib.asynccontextmanager
async def served(service: Service, port: int = 0) -> AsyncIterator[int]:
    """The port that a service is served on, until the end of the block."""
    bound = listen("127.0.0.1", port)
    server = Deaf(service, grace=1)
    serving = asyncio.create_task(server.serve([bound]))
    try:
        yield bound.getsockname()[1]
    finally:
        server.stop()
        await serving
        service.is_stopping = False


@contextlib.asynccontextmanager
async def service_of(store: MemoryStore) -> AsyncIterator[Service]:
    """A service whose store outlives what it is served by."""
    async with Service(store, authenticator=authenticator_of(None, None, KEY)) as service:
        yield service


async def test_subscriptions_are_made_again_when_the_service_is_back() -> None:
    store = MemoryStore()
    async with service_of(store) as service, contextlib.AsyncExitStack() as stack:
        async with served(service) as port:
            url = f"http://{token('acme')}@127.0.0.1:{port}"
            remote = await stack.enter_async_context(opened(url))
            subscription = await stack.enter_async_context(remote.notifier.subscribe(QUEUE, Topic.READY))
        # The loss itself notifies: something may have been missed.
        await drain_notifications(subscription)
        with pytest.raises(StoreUnavailableError):
            await remote.clock.now()
        async with served(service, port):
            notified_as_it_came_back = await subscription.wait(PATIENCE)
            await store.moves.enqueue(QUEUE, [new_job()])
            was_notified = await subscription.wait(PATIENCE)
            counts = await remote.reads.counts(QUEUE)
            await stack.aclose()

    assert (notified_as_it_came_back, was_notified) == (True, True)
    assert sum(counts.values()) == 1


async def test_a_worker_goes_on_when_the_service_is_back() -> None:
    store = MemoryStore()
    async with service_of(store) as service, contextlib.AsyncExitStack() as stack:
        async with served(service) as port:
            app = Penstock(f"http://{token('acme')}@127.0.0.1:{port}", tenant="acme")

            @app.task
            async def double(number: int) -> int:
                return 2 * number

            await stack.enter_async_context(app)
            pool = app.worker(concurrency=5, poll=0.05)
            working = asyncio.create_task(pool.run())
            before = await (await double.enqueue(1)).result(timeout=PATIENCE)
        pending = asyncio.create_task(double.enqueue(2))
        async with served(service, port):
            after = await (await pending).result(timeout=PATIENCE)
            pool.stop()
            await working
            await stack.aclose()

    assert (before, after) == (2, 4)


async def test_a_stream_is_shared_and_outlives_a_subscription() -> None:
    async with (
        service_of(MemoryStore()) as service,
        served(service) as port,
        opened(f"http://{token('acme')}@127.0.0.1:{port}") as remote,
    ):
        streams: list[Request] = []
        for _ in range(3):
            hear = remote.notifier.subscribe
            async with hear(QUEUE, Topic.ENDED), hear(QUEUE, Topic.ENDED):
                streams = list(service.waiting)
        same = list(service.waiting)

    assert len(streams) == 1
    assert same == streams


async def test_a_subscription_that_may_not_be_heard_is_made_all_the_same() -> None:
    async with service_of(MemoryStore()) as service, served(service) as port:
        url = f"http://{token('acme', scopes=('store:other',))}@127.0.0.1:{port}"
        async with opened(url) as remote, remote.notifier.subscribe(QUEUE, Topic.READY) as subscription:
            assert not await subscription.wait(0.01)  # real time: nothing can notify it, however long it is
