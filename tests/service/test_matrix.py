"""Every route of the OpenAPI document, asked for by every kind of stranger."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import msgspec
import pytest

from penstock.service.app import Service
from penstock.service.auth.api_tokens import ApiTokens
from penstock.service.auth.authenticator import authenticator_of
from penstock.service.auth.development import DevelopmentKey
from penstock.service.openapi import document
from penstock.service.routes import ROUTES
from penstock.stores.memory import MemoryStore
from penstock.stores.values import WorkerEntry
from penstock.stores.wire import CALLS, MEDIA_TYPE
from tests.service.kit import client_of

KEY = DevelopmentKey.make()
CANARY = "canary-7f3a"
QUEUE, JOB, SCHEDULE = f"q-{CANARY}", f"j-{CANARY}", f"s-{CANARY}"
OPERATIONS = [
    (method.upper(), path, operation)
    for path, operations in document(ROUTES)["paths"].items()
    for method, operation in operations.items()
]
GUARDED = [each for each in OPERATIONS if each[2].get("security") != []]
IDS = [operation["operationId"] for _, _, operation in OPERATIONS]
GUARDED_IDS = [operation["operationId"] for _, _, operation in GUARDED]


def token(
    tenant: str = "owner", *scopes: str, lived: float = 0, audience: str = "penstock"
) -> dict[str, str]:
    """The header of a token that may do all, but for what is said."""
    now = time.time() - lived
    made = KEY.mint(
        tenants=[tenant], subject="ada", scopes=scopes or ["*"], seconds=600, now=now, audience=audience
    )
    return {"authorization": f"Bearer {made}"}


@asynccontextmanager
async def owned() -> AsyncIterator[httpx.AsyncClient]:
    """A service where one tenant owns something of each kind."""
    store = MemoryStore()
    service = Service(store, authenticator=authenticator_of(None, ApiTokens(store), KEY))
    async with service, client_of(service) as client:
        fields = {"task": f"t-{CANARY}", "id": JOB, "payload": {"secret": CANARY}}
        client.headers.update(token())
        assert (await client.post(f"/v1/queues/{QUEUE}/jobs", json=fields)).status_code == 201
        schedule = {"queue": QUEUE, "task": f"t-{CANARY}", "every": 3600}
        assert (await client.put(f"/v1/schedules/{SCHEDULE}", json=schedule)).status_code == 201
        worker = WorkerEntry(JOB, "host", 1, "1", {QUEUE: 1}, (f"t-{CANARY}",), instance="i")
        await store.workers.register_worker("owner", worker, 600_000)
        hook = {"url": f"https://8.8.8.8/{CANARY}", "note": CANARY}
        assert (await client.post("/v1/webhooks", json=hook)).status_code == 201
        del client.headers["authorization"]
        yield client


async def request(
    client: httpx.AsyncClient, method: str, path: str, operation: dict[str, Any], headers: dict[str, str]
) -> httpx.Response:
    """The operation on what the owner has, with the body that the document shows."""
    owner = token()
    hook = (await client.get("/v1/webhooks", headers=owner)).json()["webhooks"][0]["id"]
    names = {"queue": QUEUE, "name": SCHEDULE, "move": "get", "delivery": JOB, "worker": JOB}
    names["id"] = hook if "/webhooks/" in path else JOB
    for name, value in names.items():
        path = path.replace(f"{{{name}}}", value)
    if "/events/stream" in path:
        # One that is let in would never end.
        path += "?after=1-00000000"
    content = operation.get("requestBody", {}).get("content", {})
    if MEDIA_TYPE in content:
        body = CALLS["get"].encode("owner", QUEUE, {"ids": [JOB]})
        if path.endswith("/subscriptions"):
            body = msgspec.msgpack.encode({"tenant": "owner", "topics": [[QUEUE, "ready"]]})
        return await client.request(
            method, path, content=body, headers=headers | {"content-type": MEDIA_TYPE}
        )
    json = dict(content["application/json"]["example"]) if content else None
    if json is not None:
        json.pop("wait", None)
    return await client.request(method, path, json=json, headers=headers)


def told(answer: httpx.Response) -> str:
    """All that an answer says, but for names that the asker used itself."""
    said = answer.text + str(answer.headers)
    for own in (QUEUE, JOB, SCHEDULE):
        said = said.replace(own, "")
    return said


@pytest.mark.parametrize(("method", "path", "operation"), GUARDED, ids=GUARDED_IDS)
async def test_without_a_good_token_and_scope_nothing_is_done_or_told(
    method: str, path: str, operation: dict[str, Any]
) -> None:
    verb = operation["x-verb"]
    other = "work" if verb == "read" else "read"
    cases = {
        "no token": ({}, 401),
        "expired": (token(lived=3_600), 401),
        "wrong audience": (token(audience="another"), 401),
        "wrong scope": (token("owner", other), 403),
    }
    if "{queue}" in path:
        cases["scope of another queue"] = (token("owner", f"{verb}:another"), 403)
    async with owned() as client:
        answers = {
            name: await request(client, method, path, operation, headers)
            for name, (headers, _) in cases.items()
        }
        left = await state(client)

    assert {name: answer.status_code for name, answer in answers.items()} == {
        name: status for name, (_, status) in cases.items()
    }
    assert all(answer.headers["content-type"] == "application/problem+json" for answer in answers.values())
    assert [name for name, answer in answers.items() if CANARY in told(answer)] == []
    assert left == ("pending", False, 1)


@pytest.mark.parametrize(("method", "path", "operation"), GUARDED, ids=GUARDED_IDS)
async def test_another_tenants_things_are_not_there_for_anybody_else(
    method: str, path: str, operation: dict[str, Any]
) -> None:
    async with owned() as client:
        answer = await request(client, method, path, operation, token("stranger"))
        left = await state(client)

    names_a_thing = any(f"{{{name}}}" in path for name in ("id", "delivery"))
    names_a_schedule = "{name}" in path and method != "PUT"
    if names_a_thing or names_a_schedule:
        assert answer.status_code == 404, answer.text
    elif operation["operationId"] == "metrics":
        # For operators alone.
        assert answer.status_code == 403, answer.text
    elif operation["tags"] == ["store"] and operation["operationId"] != "hello":
        assert answer.status_code == 403, answer.text
    else:
        # It has, or is given, things of the same name of its own.
        assert answer.status_code in (200, 201, 404), answer.text
    assert CANARY not in told(answer)
    assert left == ("pending", False, 1)


@pytest.mark.parametrize("row", [row for row in OPERATIONS if row not in GUARDED], ids=lambda row: row[1])
async def test_what_needs_no_token_tells_nothing_of_a_tenant(row: Any) -> None:
    method, path, _ = row
    async with owned() as client:
        answer = await client.request(method, path)

    assert answer.status_code == 200
    assert CANARY not in told(answer)


async def state(client: httpx.AsyncClient) -> tuple[str, bool, int]:
    """What the owner's things are like: as they were, if nobody touched them."""
    owner = token()
    job = (await client.get(f"/v1/queues/{QUEUE}/jobs/{JOB}", headers=owner)).json()
    schedule = (await client.get(f"/v1/schedules/{SCHEDULE}", headers=owner)).json()
    hooks = (await client.get("/v1/webhooks", headers=owner)).json()["webhooks"]
    return job["state"], schedule["paused"], len(hooks)
