"""A tenant that asks for much keeps its neighbours waiting for little of it."""

import asyncio

import msgspec
import pytest

from penstock.core.job import QueueRef
from penstock.service.admission import LONGEST_PAUSE, REFUSALS, RefusalPause, TenantTurns
from penstock.service.app import Service
from penstock.service.limits import Limits
from penstock.stores.memory import MemoryStore
from penstock.stores.values import QueueInfo
from tests.kit.intercepted import InterceptedStore
from tests.kit.waiting import until
from tests.service.kit import HeaderAuthenticator, client_of
from tests.service.test_connections import MOST, OTHER_PEER, PATIENT, crowded, head_of, poll, request

LISTINGS = 50
SHARED = msgspec.structs.replace(PATIENT, connections_per_tenant=MOST // 2)
NEIGHBOUR = {"x-tenant": "neighbour"}


class GatedStore(InterceptedStore):
    """Lists queues only as often as a test allows, and says how many listings run."""

    def __init__(self) -> None:
        super().__init__()
        self.running: list[str] = []
        self.most_running = 0
        self.gate = asyncio.Semaphore(0)

    async def list_queues(self, tenant: str) -> list[QueueInfo]:
        self.running.append(tenant)
        self.most_running = max(self.most_running, self.running.count("acme"))
        try:
            if tenant == "acme":
                await self.gate.acquire()
            return await self.real.queues.list_queues(tenant)
        finally:
            self.running.remove(tenant)


async def test_one_listing_of_a_tenant_runs_at_a_time_and_holds_up_nothing_else() -> None:
    store = GatedStore()
    service = Service(store, authenticator=HeaderAuthenticator(), limits=Limits(concurrent_requests=2))
    async with service, client_of(service) as client:
        listings = [asyncio.create_task(client.get("/v1/queues")) for _ in range(LISTINGS)]
        await until(lambda: store.running)
        other = await client.get("/v1/queues", headers=NEIGHBOUR)
        own = await client.post("/v1/queues/mail/jobs", json={"task": "t"})
        answered_before = sum(listing.done() for listing in listings)
        for _ in listings:
            store.gate.release()
        answers = await asyncio.gather(*listings)

    assert (other.status_code, own.status_code, answered_before) == (200, 201, 0)
    assert [each.status_code for each in answers] == [200] * LISTINGS
    assert store.most_running == 1


async def test_a_neighbour_is_answered_after_a_few_of_many_listings() -> None:
    """Though all of them were sent before."""
    store = MemoryStore()
    service = Service(store, authenticator=HeaderAuthenticator())
    order: list[str] = []
    async with service, client_of(service) as client:
        for number in range(1_000):
            await store.queues.open_queue(QueueRef("acme", f"q{number}"))

        async def request(name: str, path: str) -> None:
            await client.get(path, headers={"x-tenant": name})
            order.append(name)

        await asyncio.gather(
            *(request("acme", "/v1/queues") for _ in range(LISTINGS)), request("neighbour", "/v1/queues")
        )

    assert order.index("neighbour") <= 3


async def test_requests_of_a_tenant_beyond_those_that_run_wait_in_their_order() -> None:
    turns, order = TenantTurns(2), []

    async def work(number: int) -> None:
        await turns.take("acme")
        order.append(number)
        await asyncio.sleep(0)
        turns.give_back("acme")

    await asyncio.gather(*(work(number) for number in range(10)))

    assert order == list(range(10))


async def test_a_request_that_is_cancelled_while_it_waits_leaves_its_turn_to_the_next() -> None:
    turns = TenantTurns(1)
    await turns.take("acme")
    first, second = (asyncio.create_task(turns.take("acme")) for _ in range(2))
    await asyncio.sleep(0)
    turns.give_back("acme")
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    await second
    turns.give_back("acme")
    await turns.take("acme")

    assert first.cancelled()


async def test_a_client_that_ignores_refusals_is_answered_at_a_rate() -> None:
    now = 0.0
    pause = RefusalPause(lambda: now)
    pauses = [pause.seconds("acme") for _ in range(REFUSALS.burst + 100)]
    endless = [pause.seconds("acme") for _ in range(2_000)]
    other = pause.seconds("other")
    now = 60.0
    later = pause.seconds("acme")

    assert pauses[: REFUSALS.burst] == [0.0] * REFUSALS.burst
    assert pauses[-1] == pytest.approx(100 * REFUSALS.interval_us / 1e6)
    assert max(endless) == LONGEST_PAUSE
    assert (other, later) == (0.0, 0.0)


async def test_a_tenant_with_all_connections_busy_leaves_some_for_others() -> None:
    async with crowded(SHARED) as (server, hostile, other):
        store = GatedStore()
        server.service.store = store
        queues = b"GET /v1/queues HTTP/1.1\r\nHost: x\r\n\r\n"
        for _ in range(2 * MOST):
            await hostile.connect(queues * 60)
        await until(lambda: store.running)
        answer = await other.request(request(b'{"task":"t"}', tenant="neighbour"))
        await other.connect(poll("neighbour"))
        await until(lambda: any(each.principal.tenant == "neighbour" for each in server.service.waiting))
        server.service.stop()
        for _ in range(100 * MOST):
            store.gate.release()

    assert answer[9:12] == b"201"


async def test_a_connection_beyond_the_tenants_share_is_refused_and_closed() -> None:
    async with crowded(SHARED) as (_, hostile, other):
        queues = b"GET /v1/queues HTTP/1.1\r\nHost: x\r\n\r\n"
        first = [await hostile.request(queues) for _ in range(SHARED.connections_per_tenant)]
        refused = await hostile.request(queues)
        neighbour = await other.request(request(b'{"task":"t"}', tenant="neighbour"))

    assert {each[9:12] for each in first} == {b"200"}
    assert refused[9:12] == b"429"
    assert b"connection: close" in refused.lower()
    assert neighbour[9:12] == b"201"


async def test_requests_sent_in_advance_are_parsed_when_it_is_their_turn() -> None:
    live = b"GET /health/live HTTP/1.1\r\nHost: x\r\n\r\n"
    async with crowded() as (server, _, _other):
        reader, writer = await asyncio.open_connection("127.0.0.1", _other._port, local_addr=(OTHER_PEER, 0))
        writer.write(live * 400)
        answers = [await head_of(reader) + await reader.readexactly(15) for _ in range(400)]
        held = [each for each in server.server_state.connections if getattr(each, "_unparsed", b"")]
        writer.close()

    assert {each[9:12] for each in answers} == {b"200"}
    assert not held
