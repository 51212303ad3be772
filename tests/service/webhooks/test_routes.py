"""Webhooks over HTTP: made, changed, rotated, paused, tried, and what was delivered."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from penstock.core.job import QueueRef
from penstock.service.webhooks.messages import QUEUE
from penstock.service.webhooks.signing import verify
from penstock.stores.memory import MemoryStore
from tests.service.kit import GrantedPrincipal, HeaderAuthenticator, asked
from tests.service.webhooks.kit import end, hooked, local_egress

URL = "https://hooks.example/in"


@asynccontextmanager
async def serving(**people: Any) -> AsyncIterator[httpx.AsyncClient]:
    async with asked(egress=local_egress(), authenticator=HeaderAuthenticator(**people)) as client:
        yield client


async def made(client: httpx.AsyncClient, url: str = URL, **more: Any) -> dict[str, Any]:
    answer = await client.post("/v1/webhooks", json={"url": url, **more})
    assert answer.status_code == 201, answer.text
    body: dict[str, Any] = answer.json()
    return body


async def test_a_webhook_is_made_shown_changed_and_removed() -> None:
    async with serving() as client:
        hook = await made(client, types=["job.dead"], queues=["mail", "sync-*"], note="for the shop")
        place = f"/v1/webhooks/{hook['id']}"
        shown = (await client.get(place)).json()
        listed = (await client.get("/v1/webhooks")).json()
        changed = await client.put(place, json={"url": f"{URL}2"})
        gone = await client.delete(place)
        then = await client.get(place)

    assert hook.pop("secret").startswith("whsec_")
    assert shown == hook
    assert listed == {"webhooks": [hook]}
    assert (shown["types"], shown["queues"], shown["note"]) == (
        ["job.dead"],
        ["mail", "sync-*"],
        "for the shop",
    )
    assert changed.json()["url"] == f"{URL}2"
    assert changed.json()["queues"] == ["*"]
    assert (gone.status_code, then.status_code) == (204, 404)


async def test_an_ending_reaches_the_receiver() -> None:
    store = MemoryStore()
    async with (
        hooked() as (egress, receiver, url),
        asked(store, egress=egress) as client,
    ):
        hook = await made(client, url)
        await end(store, QueueRef("acme", "mail"), "a")
        (request,) = await receiver.arrived(1)

    verify(hook["secret"], request.headers, request.body, now=time.time())


async def test_a_ping_is_delivered_and_stands_in_the_log() -> None:
    async with hooked() as (egress, receiver, url), asked(egress=egress) as client:
        hook = await made(client, url)
        place = f"/v1/webhooks/{hook['id']}"
        sent = await client.post(f"{place}/ping")
        await receiver.arrived(1)
        done = await _ended(client, f"{place}/deliveries/{sent.json()['id']}")
        listed = (await client.get(f"{place}/deliveries", params={"state": "completed", "limit": 1})).json()
        again = await client.post(f"{place}/deliveries/{done['id']}/redeliver")
        await receiver.arrived(2)

    assert sent.status_code == again.status_code == 202
    assert (done["type"], done["status"], len(done["tries"])) == ("webhook.ping", 204, 1)
    assert done["body"] == receiver.requests[0].body.decode()
    assert [each["id"] for each in listed["deliveries"]] == [done["id"]]
    assert again.json()["message"] == done["message"]


async def test_a_secret_is_replaced_and_shown_once() -> None:
    async with serving() as client:
        hook = await made(client)
        place = f"/v1/webhooks/{hook['id']}"
        rotated = (await client.post(f"{place}/rotate", json={"overlap": 60})).json()
        shown = (await client.get(place)).json()

    assert rotated["secret"] != hook["secret"]
    assert rotated["old_secret_until"] == shown["old_secret_until"]
    assert "secret" not in shown


async def test_a_webhook_is_paused_and_resumed() -> None:
    async with serving() as client:
        place = f"/v1/webhooks/{(await made(client))['id']}"
        paused = (await client.post(f"{place}/pause", json={"reason": "moving house"})).json()
        resumed = (await client.post(f"{place}/resume")).json()

    assert paused["paused"] == "moving house"
    assert "paused" not in resumed


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"url": "https://127.0.0.2/"}, "/url"),
        ({"url": "ftp://hooks.example/"}, "/url"),
        ({}, "/url"),
        ({"url": URL, "types": ["job.started"]}, "/types/0"),
        ({"url": URL, "types": []}, "/types"),
        ({"url": URL, "queues": ["a b"]}, "/queues"),
        ({"url": URL, "secret": "whsec_short"}, "/secret"),
        ({"url": URL, "colour": "red"}, "/colour"),
    ],
)
async def test_bad_input_is_a_problem_that_names_its_place(body: dict[str, Any], pointer: str) -> None:
    async with serving() as client:
        answer = await client.post("/v1/webhooks", json=body)

    assert answer.status_code == 400
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["errors"][0]["pointer"] == pointer


async def test_what_is_another_tenants_is_not_there() -> None:
    async with serving() as client:
        hook = await made(client)
        place = f"/v1/webhooks/{hook['id']}"
        sent = (await client.post(f"{place}/ping")).json()
        stranger = {"x-tenant": "other"}
        answers = [
            await client.get(place, headers=stranger),
            await client.put(place, json={"url": URL}, headers=stranger),
            await client.delete(place, headers=stranger),
            await client.post(f"{place}/rotate", json={}, headers=stranger),
            await client.post(f"{place}/pause", json={"reason": "x"}, headers=stranger),
            await client.post(f"{place}/resume", headers=stranger),
            await client.post(f"{place}/ping", headers=stranger),
            await client.get(f"{place}/deliveries", headers=stranger),
            await client.get(f"{place}/deliveries/{sent['id']}", headers=stranger),
            await client.post(f"{place}/deliveries/{sent['id']}/redeliver", headers=stranger),
        ]
        listed = await client.get("/v1/webhooks", headers=stranger)

    assert [each.status_code for each in answers] == [404] * len(answers)
    assert listed.json() == {"webhooks": []}


async def test_a_token_for_some_queues_manages_webhooks_of_those_only() -> None:
    narrow = GrantedPrincipal(tenant="acme", queues=frozenset({"mail"}))
    async with serving(narrow=narrow) as client:
        wide = await made(client)
        mine = await made(client, queues=["mail"])
        who = {"x-tenant": "narrow"}
        refused = await client.post("/v1/webhooks", json={"url": URL}, headers=who)
        widened = await client.put(
            f"/v1/webhooks/{mine['id']}", json={"url": URL, "queues": ["*"]}, headers=who
        )
        hidden = await client.get(f"/v1/webhooks/{wide['id']}", headers=who)
        listed = await client.get("/v1/webhooks", headers=who)

    assert (refused.status_code, widened.status_code, hidden.status_code) == (403, 403, 404)
    assert [each["id"] for each in listed.json()["webhooks"]] == [mine["id"]]


async def test_a_delivery_of_one_webhook_is_not_found_under_another() -> None:
    async with serving() as client:
        one, two = await made(client), await made(client)
        sent = (await client.post(f"/v1/webhooks/{one['id']}/ping")).json()

        assert (await client.get(f"/v1/webhooks/{two['id']}/deliveries/{sent['id']}")).status_code == 404


async def _ended(client: httpx.AsyncClient, place: str) -> dict[str, Any]:
    # A delivery is a job like any other, and can be waited for like one.
    job = place.rpartition("/")[2]
    await client.get(f"/v1/queues/{QUEUE}/jobs/{job}/result", params={"wait": 60})
    found: dict[str, Any] = (await client.get(place)).json()
    return found


CLOSED: list[tuple[str, str, dict[str, Any]]] = [
    ("POST", f"/v1/queues/{QUEUE}/jobs", {"task": "penstock.webhook", "key": "wh", "payload": {}}),
    ("POST", f"/v1/queues/{QUEUE}/claims", {"worker": "w"}),
    (
        "POST",
        f"/v1/queues/{QUEUE}/claims/settle",
        {"settlements": [{"how": "complete", "id": "a", "token": "t"}]},
    ),
    ("PUT", f"/v1/queues/{QUEUE}", {"version": 2}),
    ("POST", f"/v1/queues/{QUEUE}/purge", {}),
    ("POST", f"/v1/queues/{QUEUE}/dead-letters/purge", {}),
    ("POST", "/v1/flows", {"jobs": [{"name": "a", "queue": QUEUE, "task": "x"}]}),
    ("PUT", "/v1/schedules/nightly", {"queue": QUEUE, "task": "x", "every": 60}),
    ("POST", "/v1/queues/penstock.other/jobs", {"task": "x"}),
]


@pytest.mark.parametrize(("method", "path", "body"), CLOSED)
async def test_the_services_own_queues_are_closed_to_every_token(
    method: str, path: str, body: dict[str, Any]
) -> None:
    store = MemoryStore()
    async with asked(store, egress=local_egress()) as client:
        answer = await client.request(method, path, json=body)
        made_by_it = await store.queues.list_queues("acme")

    assert answer.status_code == 403
    assert "the service's own" in answer.json()["detail"]
    assert made_by_it == []


async def test_one_of_many_jobs_for_the_services_own_queue_is_refused_alone() -> None:
    async with serving() as client:
        answer = await client.post(
            "/v1/jobs", json={"jobs": [{"queue": QUEUE, "task": "x"}, {"queue": "mail", "task": "x"}]}
        )

    forged, good = answer.json()["outcomes"]
    assert forged["problem"]["status"] == 403
    assert good["job"]["created"] is True


async def test_deliveries_can_be_read_as_jobs() -> None:
    async with hooked() as (egress, receiver, url), asked(egress=egress) as client:
        hook = await made(client, url)
        sent = (await client.post(f"/v1/webhooks/{hook['id']}/ping")).json()
        await receiver.arrived(1)
        shown = await client.get(f"/v1/queues/{QUEUE}/jobs/{sent['id']}")
        listed = await client.get(f"/v1/webhooks/{hook['id']}/deliveries")

    assert shown.json()["key"] == hook["id"]
    assert listed.json().keys() == {"deliveries"}
