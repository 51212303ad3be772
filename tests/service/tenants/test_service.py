"""Tenants at the service itself: an operator's fair turns, quotas with 429, and what the log of acts says."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import msgspec
import pytest

from penstock.core.cron.catch_up import CatchUp
from penstock.core.cron.schedule import Schedule, encode_schedule
from penstock.core.cron.spec import Every
from penstock.core.job import QueueRef
from penstock.service.app import Service
from penstock.service.auth.api_tokens import ApiTokens
from penstock.service.auth.authenticator import TENANT_HEADER, authenticator_of
from penstock.service.auth.development import DevelopmentKey
from penstock.service.tenants.audit import Audit
from penstock.service.tenants.quota_repository import Quota, QuotaRepository
from penstock.service.tenants.quotas import StoredQuotas
from penstock.service.tenants.usage import Usage
from penstock.stores.memory import MemoryStore
from penstock.stores.protocol import Store
from penstock.stores.values import StoredSchedule
from penstock.stores.wire import CALLS, MEDIA_TYPE
from penstock.testing.conformance.parts import Part
from tests.conformance.having import served
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
    store = store.clone()
    usage = Usage(store)
    service = Service(
        store,
        authenticator=authenticator_of(None, ApiTokens(store), KEY),
        quotas=StoredQuotas(store, usage),
        audit=Audit(store),
        duties=[usage],
    )
    async with service, client_of(service) as client:
        yield client


def jobs(many: int) -> dict[str, Any]:
    """A request for so many jobs."""
    return {"jobs": [{"queue": "mail", "task": "send", "payload": {}}] * many}


@served(Part.KEY_VALUE)
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
            fields = {"worker": "w", "limit": BATCH}
            answer = await client.post("/v1/queues/mail/claims", json=fields, headers=operator)
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


@served(Part.KEY_VALUE)
async def test_a_flooder_is_refused_with_429_and_others_are_served(store: Store, queue: Any) -> None:
    flood, quiet = f"{queue.tenant}-flood", f"{queue.tenant}-quiet"
    await QuotaRepository(store.key_value).set(flood, Quota(jobs_per_second=0.01))
    async with serving(store) as client:
        first = await client.post("/v1/jobs", json=jobs(100), headers=token(flood))
        second = await client.post("/v1/jobs", json=jobs(100), headers=token(flood))
        one = await client.post(
            "/v1/queues/mail/jobs", json={"task": "send", "payload": {}}, headers=token(flood)
        )
        other = await client.post("/v1/jobs", json=jobs(100), headers=token(quiet))
        counts = await client.get("/v1/queues/mail", headers=token(flood))
    await QuotaRepository(store.key_value).unset(flood)
    days = await Usage(store).of(flood)

    assert (first.status_code, other.status_code, counts.status_code) == (200, 200, 200)
    assert (second.status_code, one.status_code) == (429, 429)
    assert second.json()["type"] == "urn:penstock:quota"
    assert int(second.headers["retry-after"]) > 1_000
    # Both were refused before their bodies were read.
    assert (sum(day.jobs for day in days), sum(day.refused for day in days)) == (100, 2)


async def test_the_other_quotas_are_held_too() -> None:
    store = MemoryStore()
    await QuotaRepository(store.key_value).set("acme", Quota(queue_length=5, payload_bytes=100, schedules=0))
    async with serving(store) as client:
        full = await client.post("/v1/jobs", json=jobs(6), headers=token("acme"))
        large = await client.post(
            "/v1/queues/mail/jobs", json={"task": "send", "payload": {"x": "x" * 100}}, headers=token("acme")
        )
        fits = await client.post("/v1/jobs", json=jobs(5), headers=token("acme"))

    assert (full.status_code, large.status_code, fits.status_code) == (429, 400, 200)
    assert large.json()["errors"][0]["wanted"].startswith("at most 100")


async def test_a_schedule_that_is_changed_is_held_to_the_quotas_too() -> None:
    store = MemoryStore()
    await QuotaRepository(store.key_value).set("acme", Quota(payload_bytes=100))
    fields = {"queue": "mail", "task": "send", "every": 60}
    async with serving(store) as client:
        client.headers.update(token("acme"))
        made = await client.put("/v1/schedules/s", json=fields)
        changed = await client.put("/v1/schedules/s", json=fields | {"payload": {"x": "y" * 200}})

    assert made.status_code == 201
    assert (changed.status_code, changed.json()["errors"][0]["pointer"]) == (400, "/payload")


async def test_a_schedule_as_a_record_is_held_to_the_quotas_too() -> None:
    store = MemoryStore()
    await QuotaRepository(store.key_value).set("acme", Quota(payload_bytes=100, jobs_per_second=1))
    late = Schedule(name="s", spec=Every(1_000), task="send", payload=b"{}", catch_up=CatchUp.ALL)
    call = CALLS["put_schedule"]

    async with serving(store) as client:
        client.headers.update(token("acme") | {"content-type": MEDIA_TYPE})

        async def put(schedule: Schedule) -> int:
            at = await store.clock.now() - 50_000
            stored = StoredSchedule(QueueRef("acme", "mail"), "s", encode_schedule(schedule), at)
            body = call.encode("acme", None, {"schedule": stored})
            return (await client.post("/v1/store/put_schedule", content=body)).status_code

        fast = await put(msgspec.structs.replace(late, spec=Every(1)))
        large = await put(msgspec.structs.replace(late, payload=b'"%s"' % (b"y" * 200)))
        put_once, again = await put(late), await put(late)

    assert (fast, large, put_once, again) == (400, 400, 200, 429)


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

    acts = [(act.who, act.what, act.on) for act in await Audit(store).entries("acme")]
    assert len(acts) == 2
    assert {who for who, _, _ in acts} == {"ada"}
    assert {on for _, _, on in acts} == {"mail"}
