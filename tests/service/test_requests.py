"""What every request is held to: its size, its form, its time; and what every refusal says."""

import asyncio
import logging
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from penstock.core import errors
from penstock.core.errors import OptionError, PenstockError
from penstock.core.states import State
from penstock.service.app import Service
from penstock.service.limits import Limits
from penstock.service.problems import pointer_of, problem_of, validation_fault
from penstock.stores.memory import MemoryStore
from tests.kit.intercepted import InterceptedStore
from tests.kit.waiting import until
from tests.service.kit import GrantedPrincipal, HeaderAuthenticator, asked, client_of

JOBS = "/v1/queues/mail/jobs"
JSON = {"content-type": "application/json"}


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/", 404),
        ("GET", "/v1", 404),
        ("GET", "/v1/queues/", 404),
        ("GET", "/v1/queues//jobs", 404),
        ("GET", "/v1/queues/mail/jobs/a/b", 404),
        ("PATCH", "/v1/queues/mail", 405),
        ("GET", "/v1/queues/no%20name", 400),
        ("GET", "/v1/queues/{}", 400),
        ("GET", f"/v1/queues/{'x' * 129}", 400),
        ("GET", f"{JOBS}?limit=0", 400),
        ("GET", f"{JOBS}?limit=x", 400),
        ("GET", f"{JOBS}?limit=1&limit=2", 400),
        ("GET", f"{JOBS}?nope=1", 400),
        ("GET", f"{JOBS}?state=nope", 400),
        ("GET", f"{JOBS}?after=nope", 400),
        ("GET", f"{JOBS}?limit=%FF", 400),
        ("GET", f"{JOBS}?=", 400),
        ("GET", "/v1/queues/none/jobs", 404),
        ("GET", "/v1/queues/mail/jobs/none", 404),
        ("POST", "/v1/queues/mail/jobs/none/cancel", 404),
        ("POST", "/v1/queues/mail/jobs/none/retry", 404),
        ("DELETE", "/v1/queues/mail/jobs/none", 404),
        ("GET", "/v1/queues/mail/jobs/none/result?wait=1", 404),
        ("GET", "/v1/queues/mail/jobs/none/explain", 404),
        ("GET", "/v1/queues/mail/jobs/none/children", 404),
        ("GET", "/v1/queues/none/events", 404),
        ("GET", "/v1/schedules/none", 404),
    ],
)
async def test_a_request_that_leads_nowhere_gets_a_problem(method: str, path: str, status: int) -> None:
    async with asked() as client:
        await client.post(JOBS, json={"task": "send"})
        answer = await client.request(method, path)

    problem = answer.json()
    assert (answer.status_code, problem["status"]) == (status, status)
    assert answer.headers["content-type"] == "application/problem+json"
    assert problem["request_id"] == answer.headers["x-request-id"]
    assert status != 405 or answer.headers["allow"] == "DELETE, GET, PUT"


@pytest.mark.parametrize(
    ("body", "status", "pointer"),
    [
        (b"", 400, None),
        (b"{", 400, None),
        (b"[]", 400, ""),
        (b"null", 400, ""),
        (b"\xff", 400, None),
        (b"[" * 40_000, 400, ""),
        (b'{"task":"t","payload":' + b"[" * 40_000, 400, None),
        (b'{"task":"t","payload":{"a":' + b"[" * 70 + b"]" * 70 + b"}}", 400, "/payload"),
        (b'{"task":"t","payload":{"a":1e999}}', 400, None),
        (b'{"task":"t","payload":{"a":NaN}}', 400, None),
        (b'{"task":"t","payload":"text"}', 400, "/payload"),
        (b'{"task":"no name"}', 400, "/task"),
        (b'{"payload":{}}', 400, "/task"),
        (b'{"task":"t","bogus":1}', 400, "/bogus"),
        (b'{"task":"t","delay":-1}', 400, "/delay"),
        (b'{"task":"t","delay":"1"}', 400, "/delay"),
        (b'{"task":"t","delay":1,"run_at":"2030-01-01T00:00:00Z"}', 400, "/run_at"),
        (b'{"task":"t","run_at":"2030-01-01T00:00:00"}', 400, "/run_at"),
        (b'{"task":"t","backoff":[]}', 400, "/backoff/delays"),
        (b'{"task":"t","backoff":{"base":9e9}}', 400, "/backoff/base"),
        (b'{"task":"t","timeout":0}', 400, "/timeout"),
        (b'{"task":"t","unique":"live","idempotency_key":"k"}', 400, "/idempotency_key"),
        (b'{"task":"t","key":""}', 400, "/key"),
    ],
    ids=lambda value: repr(value)[:40],
)
async def test_a_body_that_cannot_be_used_is_named_by_its_place(
    body: bytes, status: int, pointer: str | None
) -> None:
    async with asked() as client:
        answer = await client.post(JOBS, content=body, headers=JSON)
        listed = await client.get("/v1/queues")

    problem = answer.json()
    assert answer.status_code == status, problem
    if pointer is not None:
        assert [each["pointer"] for each in problem["errors"]] == [pointer]
        assert problem["errors"][0]["wanted"]
    assert listed.json() == {"queues": []}


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"content-type": "text/plain"}, 415),
        ({"content-type": "application/x-www-form-urlencoded"}, 415),
        (JSON | {"content-encoding": "gzip"}, 415),
        (JSON | {"content-length": "9999999999"}, 413),
        (JSON | {"content-length": "-5"}, 400),
    ],
)
async def test_a_body_of_another_form_or_size_is_not_read(headers: dict[str, str], status: int) -> None:
    async with asked() as client:
        answer = await client.post(JOBS, content=b'{"task":"send"}', headers=headers)

    assert answer.status_code == status


async def test_a_body_that_never_ends_is_cut_off_at_its_limit() -> None:
    sent = 0

    async def endless() -> Any:
        nonlocal sent
        while True:
            sent += 1_000
            yield b"x" * 1_000

    service = Service(MemoryStore(), authenticator=HeaderAuthenticator(), limits=Limits(body_bytes=10_000))
    taken: list[dict[str, Any]] = []
    pieces = endless()

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": await anext(pieces), "more_body": True}

    async def send(message: Any) -> None:
        taken.append(message)

    scope = {"type": "http", "method": "POST", "path": JOBS, "headers": [], "query_string": b""}
    async with service:
        await service(scope, receive, send)

    assert (taken[0]["status"], sent) == (413, 11_000)


async def test_a_body_that_drips_is_given_up() -> None:
    service = Service(MemoryStore(), authenticator=HeaderAuthenticator(), limits=Limits(body_timeout=0.05))
    taken: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        await asyncio.sleep(0)
        return {"type": "http.request", "body": b" ", "more_body": True}

    async def send(message: Any) -> None:
        taken.append(message)

    scope = {"type": "http", "method": "POST", "path": JOBS, "headers": [], "query_string": b""}
    async with service:
        await service(scope, receive, send)

    assert taken[0]["status"] == 408
    assert (b"connection", b"close") in taken[0]["headers"]


async def test_a_client_that_takes_nothing_is_given_up() -> None:
    service = Service(MemoryStore(), authenticator=HeaderAuthenticator(), limits=Limits(send_timeout=0.01))

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        await asyncio.Event().wait()

    scope = {"type": "http", "method": "GET", "path": "/health/live", "headers": [], "query_string": b""}
    async with service:
        await service(scope, receive, send)


async def test_no_more_than_so_many_wait_at_once() -> None:
    service = Service(MemoryStore(), authenticator=HeaderAuthenticator(), limits=Limits(streams=1))
    async with service, client_of(service) as client:
        await client.post(JOBS, json={"task": "send", "delay": 600})
        fields = {"worker": "w", "wait": 60}
        polling = asyncio.create_task(client.post("/v1/queues/mail/claims", json=fields))
        await until(lambda: service.waiting)
        refused = await client.post("/v1/queues/mail/claims", json=fields)
        stream = await client.get("/v1/queues/mail/events/stream")
        service.stop()
        await polling

    assert (refused.status_code, stream.status_code) == (429, 429)
    assert refused.headers["retry-after"] == "1"


async def test_what_nobody_foresaw_tells_nothing_of_the_inside(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(InterceptedStore):
        async def list_queues(self, tenant: str) -> Any:
            raise RuntimeError("secret-path /etc/shadow")

    with caplog.at_level(logging.ERROR, "penstock"):
        async with asked(Broken()) as client:
            answer = await client.get("/v1/queues")

    assert answer.status_code == 500
    assert "shadow" not in answer.text
    assert "shadow" in caplog.text


async def test_the_access_log_has_no_token_payload_query_or_id(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "penstock"):
        async with asked() as client:
            fields = {"task": "send", "id": "job-canary", "payload": {"a": "payload-canary"}}
            headers = {"authorization": "Bearer token-canary", "x-request-id": "mine-1"}
            await client.post(f"{JOBS}", json=fields, headers=headers)
            await client.get(f"{JOBS}/job-canary?payload=true&after=query-canary")

    records = [each for each in caplog.records if each.name == "penstock.access"]
    assert records[0].__dict__["request"] == "mine-1"
    assert (records[0].__dict__["tenant"], records[0].__dict__["subject"]) == ("acme", "ada")
    assert "POST /v1/queues/{queue}/jobs 201" in records[0].getMessage()
    assert "canary" not in caplog.text


@pytest.mark.parametrize("given", ["a b", "x" * 65, "ä", ""])
async def test_a_request_id_that_is_none_is_replaced(given: str) -> None:
    async with asked() as client:
        answer = await client.get("/health/live", headers={b"x-request-id": given.encode()})

    assert len(answer.headers["x-request-id"]) == 16


async def test_readiness_follows_the_store_and_the_end_of_the_service() -> None:
    class Away(InterceptedStore):
        async def now(self) -> int:
            raise errors.StoreUnavailableError("gone")

    service = Service(MemoryStore(), authenticator=HeaderAuthenticator())
    async with service, client_of(service) as client:
        ready = await client.get("/health/ready")
        service.stop()
        stopping, live = await client.get("/health/ready"), await client.get("/health/live")
    async with asked(Away()) as client:
        away = await client.get("/health/ready")

    assert [each.status_code for each in (ready, stopping, live, away)] == [200, 503, 200, 503]


async def test_a_server_opens_and_closes_the_service_and_may_serve_it_below_a_path() -> None:
    asked_for = asyncio.Queue[dict[str, Any]]()
    told = asyncio.Queue[Any]()
    service = Service(MemoryStore(), authenticator=HeaderAuthenticator())
    living = asyncio.create_task(service({"type": "lifespan"}, asked_for.get, told.put))
    asked_for.put_nowait({"type": "lifespan.startup"})
    started = await told.get()
    transport = httpx.ASGITransport(service, root_path="/api")
    async with httpx.AsyncClient(transport=transport, base_url="http://service") as client:
        served = await client.get("/api/v1/queues")
    asked_for.put_nowait({"type": "lifespan.shutdown"})
    await living
    ended = await told.get()

    assert served.status_code == 200
    assert [started["type"], ended["type"]] == ["lifespan.startup.complete", "lifespan.shutdown.complete"]


async def test_an_operator_has_to_say_whom_a_request_is_for() -> None:
    operator = GrantedPrincipal(tenant="*", tenants=("acme",))
    async with asked(authenticator=HeaderAuthenticator(op=operator)) as client:
        answer = await client.post(JOBS, json={"task": "send"}, headers={"x-tenant": "op"})

    assert answer.status_code == 400
    assert "Penstock-Tenant" in answer.json()["detail"]


@pytest.mark.parametrize(
    ("path", "pointer"),
    [("a", "/a"), ("a.b[3].c", "/a/b/3/c"), ("a['x y']", "/a/x y"), ("a['~/']", "/a/~0~1"), ("", "")],
)
def test_a_path_becomes_a_json_pointer(path: str, pointer: str) -> None:
    assert pointer_of(path) == pointer


@pytest.mark.parametrize(
    "kind",
    [each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, PenstockError)],
    ids=lambda kind: kind.__name__,
)
def test_every_error_has_a_status_and_a_kind(kind: type[PenstockError]) -> None:
    error = kind.__new__(kind)
    # Made without what each of them wants to be made with.
    vars(error).update(field="a", found=1, wanted="2", trimmed=None)
    problem, _ = problem_of(error)

    assert 400 <= problem.status < 600
    assert problem.type.startswith("urn:penstock:")


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (datetime(2026, 1, 31, tzinfo=UTC), "2026-01-31T00:00:00+00:00"),
        (State.ACTIVE, "active"),
        ([State.ACTIVE], "[active]"),
        (b"x", "x"),
        ("text", "'text'"),
        (5, "5"),
    ],
)
def test_a_problem_says_what_was_found_in_plain_words(found: object, said: str) -> None:
    problem, _ = problem_of(OptionError("field", found, "something else"))

    assert problem.detail == f"field: found {said}, wanted something else"


def test_a_value_that_is_none_of_those_allowed_is_what_was_found() -> None:
    fault = validation_fault("Invalid enum value 'webhook.ping' - at `$.types[...]`")

    assert (fault.found, fault.pointer) == ("webhook.ping", "/types/...")
    assert fault.wanted.startswith("one of the values")
