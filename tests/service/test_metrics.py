"""`GET /metrics` of the service: for operators, each of whom sees the queues of its own tenants."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest

from penstock.core.errors import StoreUnavailableError
from penstock.core.job import NewJob, QueueRef
from penstock.service.app import Service
from penstock.service.auth.authenticator import authenticator_of
from penstock.service.auth.development import DevelopmentKey
from penstock.service.full_service import full_service
from penstock.service.measuring import measured
from penstock.stores.memory import MemoryStore
from penstock.stores.protocol import Store
from penstock.testing.conformance.parts import PARTS
from tests.conformance.having import having
from tests.kit.intercepted import InterceptedStore
from tests.metrics.kit import Parsed
from tests.service.kit import client_of

KEY = DevelopmentKey.make()


def bearer(*tenants: str, scopes: str = "*", operator: bool = True) -> dict[str, str]:
    """The header of a token."""
    made = KEY.mint(
        tenants=list(tenants), subject="ada", scopes=[scopes], seconds=600, now=time.time(), operator=operator
    )
    return {"authorization": f"Bearer {made}"}


@asynccontextmanager
async def served(store: Store, *tenants: str) -> AsyncIterator[httpx.AsyncClient]:
    """A service whose tenants each have a job in the queue `mail`."""
    service = Service(store, authenticator=authenticator_of(None, None, KEY), exposition=measured(store))
    async with service, client_of(service) as client:
        for tenant in tenants:
            new = NewJob(id=f"job-of-{tenant}", nonce="n", task="send", payload=b"{}")
            await store.moves.enqueue(QueueRef(tenant, "mail"), [new])
        yield client


async def scraped(client: httpx.AsyncClient, headers: dict[str, str]) -> Parsed:
    """What a scrape gets."""
    answer = await client.get("/metrics", headers=headers)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    return Parsed(answer.content)


@having(*PARTS)
async def test_an_operator_sees_the_queues_of_its_tenants_on_every_store(
    store: Store, queue: QueueRef
) -> None:
    # The remote store reaches one tenant only.
    async with served(store.clone(), queue.tenant) as client:
        found = await scraped(client, bearer(queue.tenant))

    assert found.value("penstock_jobs", tenant=queue.tenant, queue="mail", state="pending") == 1
    assert found.value("penstock_moves_total", tenant=queue.tenant, move="enqueue", result="applied") == 1
    assert found.value("penstock_sample_stale") == 0


async def test_no_operator_sees_a_tenant_or_a_queue_that_its_token_does_not_name() -> None:
    async with served(MemoryStore(), "a", "b", "c") as client:
        everyone = await scraped(client, bearer("*"))
        some = await scraped(client, bearer("a", "c"))
        narrow = await scraped(client, bearer("*", scopes="read:other"))

    def seen(found: Parsed) -> set[str]:
        return {each.labels["tenant"] for each in found.samples if "tenant" in each.labels}

    assert seen(everyone) == {"a", "b", "c"}
    assert seen(some) == {"a", "c"}
    assert seen(narrow) == set()
    # What is of the whole process says how busy others are.
    assert "penstock_store_call_seconds" in everyone.families
    assert {"penstock_store_call_seconds", "penstock_event_loop_lag_seconds"} & some.families.keys() == set()


async def test_a_token_of_a_tenant_and_an_operator_that_acts_for_one_get_no_metrics() -> None:
    async with served(MemoryStore(), "a", "b") as client:
        tenant = await client.get("/metrics", headers=bearer("a", operator=False))
        acting = await client.get("/metrics", headers=bearer("a") | {"penstock-tenant": "a"})
        nobody = await client.get("/metrics")

    assert (tenant.status_code, acting.status_code, nobody.status_code) == (403, 403, 401)
    assert "operators" in tenant.json()["detail"]


async def test_a_scrape_while_the_store_is_away_shows_the_values_of_before() -> None:
    class Away(InterceptedStore):
        is_away = False

        async def list_tenants(self) -> list[str]:
            if self.is_away:
                raise StoreUnavailableError("the store is away")
            return await self.real.queues.list_tenants()

    store = Away()
    async with served(store, "a") as client:
        await scraped(client, bearer("*"))
        store.is_away = True
        service = client._transport.app  # type: ignore[attr-defined]
        service.exposition.sampler._fresh = 0
        found = await scraped(client, bearer("*"))

    assert found.value("penstock_sample_stale") == 1
    assert found.value("penstock_jobs", tenant="a", state="pending") == 1


async def test_a_service_without_metrics_says_what_is_missing() -> None:
    service = Service(MemoryStore(), authenticator=authenticator_of(None, None, KEY))
    async with service, client_of(service) as client:
        answer = await client.get("/metrics", headers=bearer("*"))

    assert (answer.status_code, "prometheus" in answer.json()["detail"]) == (404, True)


def test_without_the_extra_nothing_is_observed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.service.measuring.find_spec", lambda name: None)
    store = MemoryStore()
    moves = store.moves

    assert full_service(store, key=KEY).exposition is None
    assert store.moves is moves
