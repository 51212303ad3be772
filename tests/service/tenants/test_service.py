"""Tenants at the service itself: an operator's fair turns, quotas with 429, and what the log of acts says."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from penstock.service.app import Service
from penstock.service.auth.api_tokens import ApiTokens
from penstock.service.auth.development import DevelopmentKey
from penstock.service.auth.door import TENANT_HEADER, door_of
from penstock.service.tenants.audit import Audit
from penstock.service.tenants.book import Quota, QuotaBook
from penstock.service.tenants.quotas import StoredQuotas
from penstock.service.tenants.usage import Usage
from penstock.stores.memory import MemoryStore
from penstock.stores.protocol import Store
from tests.conformance.having import served
from tests.conformance.stores import Part
from tests.service.kit import client_of

KEY = DevelopmentKey.make()
WINDOW, CLAIMS, BATCH = 1_000, 1_150, 50


def token(*tenants: str, operator: bool = False, scopes: tuple[str, ...] = ("*",)) -> dict[str, str]:
    """The header of somebody who may do all for these tenants."""
    made = KEY.mint(
        tenants=tenants, operator=operator, subject="ada", scopes=scopes, seconds=600, now=time.time()
    )
    return {"authorization": f"Bearer {made}"}


@asynccontextmanager
async def serving(store: Store) -> AsyncIterator[httpx.AsyncClient]:
    """A service with tokens, quotas, counts and a log of acts, and with a handle of its own on the store."""
    store = store.twin()
    usage = Usage(store)
    service = Service(
        store,
        door=door_of(None, ApiTokens(store), KEY),
        quotas=StoredQuotas(store, usage),
        audit=Audit(store),
        duties=[usage],
    )
    async with service, client_of(service) as client:
        yield client


def jobs(many: int) -> dict[str, Any]:
    """A request for so many jobs."""
    return {"jobs": [{"queue": "mail", "task": "send", "payload": {}}] * many}


@served(Part.SHELVES)
async def test_an_operator_claims_for_its_tenants_in_fair_turns(store: Store, queue: Any) -> None:
    """Of any thousand claims each of two tenants gets 450 to 550, though one goes on flooding."""
    flood, quiet = f"{queue.tenant}-flood", f"{queue.tenant}-quiet"
    operator = token(flood, quiet, operator=True)
    order: list[str] = []
    async with serving(store) as client:
        for _ in range(6):
            await client.post("/v1/jobs", json=jobs(100), headers=token(quiet))
            await client.post("/v1/jobs", json=jobs(200), headers=token(flood))
        while len(order) < CLAIMS:
            await client.post("/v1/jobs", json=jobs(100), headers=token(flood))
            wish = {"worker": "w", "limit": BATCH}
            answer = await client.post("/v1/queues/mail/claims", json=wish, headers=operator)
            claimed = answer.json()["jobs"]
            order += [each["tenant"] for each in claimed]
            for tenant in (flood, quiet):
                done = [
                    {"how": "complete", "id": each["id"], "token": each["token"]}
                    for each in claimed
                    if each["tenant"] == tenant
                ]
                settled = await client.post(
                    "/v1/queues/mail/claims/settle",
                    json={"settlements": done},
                    headers=operator | {TENANT_HEADER: tenant},
                )
                assert settled.status_code == 200, settled.text

    for start in range(len(order) - WINDOW + 1):
        assert 450 <= order[start : start + WINDOW].count(quiet) <= 550


@served(Part.SHELVES)
async def test_a_flooder_is_refused_with_429_and_others_are_served(store: Store, queue: Any) -> None:
    flood, quiet = f"{queue.tenant}-flood", f"{queue.tenant}-quiet"
    await QuotaBook(store).set(flood, Quota(jobs_per_second=0.01))
    async with serving(store) as client:
        first = await client.post("/v1/jobs", json=jobs(100), headers=token(flood))
        second = await client.post("/v1/jobs", json=jobs(100), headers=token(flood))
        one = await client.post(
            "/v1/queues/mail/jobs", json={"task": "send", "payload": {}}, headers=token(flood)
        )
        other = await client.post("/v1/jobs", json=jobs(100), headers=token(quiet))
        counts = await client.get("/v1/queues/mail", headers=token(flood))
    await QuotaBook(store).unset(flood)
    days = await Usage(store).of(flood)

    assert (first.status_code, other.status_code, counts.status_code) == (200, 200, 200)
    assert (second.status_code, one.status_code) == (429, 429)
    assert second.json()["type"] == "urn:penstock:quota"
    assert int(second.headers["retry-after"]) > 1_000
    assert (sum(day.jobs for day in days), sum(day.refused for day in days)) == (100, 101)


async def test_the_other_quotas_are_held_too() -> None:
    store = MemoryStore()
    await QuotaBook(store).set("acme", Quota(queue_length=5, payload_bytes=100, schedules=0))
    async with serving(store) as client:
        full = await client.post("/v1/jobs", json=jobs(6), headers=token("acme"))
        large = await client.post(
            "/v1/queues/mail/jobs", json={"task": "send", "payload": {"x": "x" * 100}}, headers=token("acme")
        )
        fits = await client.post("/v1/jobs", json=jobs(5), headers=token("acme"))

    assert (full.status_code, large.status_code, fits.status_code) == (429, 400, 200)
    assert large.json()["errors"][0]["wanted"].startswith("at most 100")


@pytest.mark.parametrize("tenant", ["initech", "*", ""])
async def test_an_operator_acts_for_no_other_tenant(tenant: str) -> None:
    async with serving(MemoryStore()) as client:
        headers = token("acme", "globex", operator=True)
        answer = await client.get("/v1/queues", headers=headers | {TENANT_HEADER: tenant})
        none = await client.get("/v1/queues/mail", headers=headers)

    assert answer.status_code == 403
    assert none.status_code == 400


async def test_administrative_acts_are_written_down() -> None:
    store = MemoryStore()
    async with serving(store) as client:
        await client.post("/v1/jobs", json=jobs(1), headers=token("acme"))
        await client.post("/v1/queues/mail/pause", json={"reason": "lunch"}, headers=token("acme"))
        await client.post("/v1/queues/mail/resume", headers=token("acme"))

    acts = [(act.who, act.what, act.on) for act in await Audit(store).acts("acme")]
    assert len(acts) == 2
    assert {who for who, _, _ in acts} == {"ada"}
    assert {on for _, _, on in acts} == {"mail"}
