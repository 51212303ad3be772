"""The head of a request is what the client sent before the body, each header that matters once."""

import asyncio
import json

import pytest

from tests.kit.waiting import PATIENCE
from tests.service.kit import asked
from tests.service.test_server import CLOSE, answered, served

JOBS = "/v1/queues/mail/jobs"
BODY = b'{"task":"send"}'
HEAD = b"POST /v1/queues/mail/jobs HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n%x\r\n%s\r\n0\r\n" % (
    len(BODY),
    BODY,
)
SHOW = b"GET %s?limit=10 HTTP/1.1\r\nHost: x\r\nX-Tenant: %s\r\nConnection: close\r\n\r\n"


async def _jobs(port: int, tenant: bytes) -> list[dict[str, object]]:
    answer = await answered(port, SHOW % (JOBS.encode(), tenant))
    return list(json.loads(answer.partition(b"\r\n\r\n")[2]).get("jobs", []))


@pytest.mark.parametrize("apart", [False, True], ids=["one packet", "late"])
async def test_trailers_are_not_headers(apart: bool) -> None:
    """A proxy judges the head of a request; what follows the body has passed no one."""
    trailers = b"X-Tenant: other\r\nIdempotency-Key: forged\r\nX-Request-Id: forged\r\n\r\n"
    async with served() as (_, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        if apart:
            writer.write(CHUNKED[:-3])
            await writer.drain()
            writer.write(CHUNKED[-3:] + trailers)
        else:
            writer.write(CHUNKED + trailers)
        answer = await reader.read()
        writer.close()
        own, others = await _jobs(port, b"acme"), await _jobs(port, b"other")

    assert answer.startswith(b"HTTP/1.1 201 "), answer
    assert b"forged" not in answer
    assert (len(own), others) == (1, [])
    assert "idempotency_key" not in own[0]


async def test_trailers_count_as_part_of_the_head() -> None:
    """Without a bound on trailers a client could fill the memory after its body."""
    async with served() as (_, port):
        answer = await answered(port, CHUNKED + b"X: " + b"a" * 40_000 + b"\r\n\r\n")

    assert b" 201 " not in answer.partition(b"\r\n")[0]


async def test_a_pipelined_request_has_no_trailer_of_the_one_before() -> None:
    first = CHUNKED.replace(b"Connection: close\r\n", b"") + b"X-Request-Id: forged\r\n\r\n"
    async with served() as (_, port):
        answer = await answered(port, first + CLOSE)

    assert answer.count(b"HTTP/1.1 20") == 2
    assert b"forged" not in answer


@pytest.mark.parametrize(
    "name",
    [
        "authorization",
        "penstock-tenant",
        "idempotency-key",
        "content-type",
        "content-encoding",
        "content-length",
        "last-event-id",
        "host",
    ],
)
async def test_a_header_that_matters_stands_there_once(name: str) -> None:
    """Two readers of such a request could each believe another one of the two."""
    value = {"content-type": "application/json; a=1", "content-length": "15"}.get(name, "identity")
    async with asked() as client:
        answer = await client.post(JOBS, content=BODY, headers=[(name, value), (name, value)])
        listed = await client.get("/v1/queues")

    problem = answer.json()
    assert (answer.status_code, problem["type"]) == (400, "urn:penstock:malformed")
    assert f"header {name}: found 2 of them, wanted one" in problem["detail"]
    assert listed.json() == {"queues": []}


async def test_an_underscore_is_no_hyphen_in_the_name_of_a_header() -> None:
    async with asked() as client:
        made = await client.post(
            JOBS, content=BODY, headers={"idempotency_key": "forged", "x_tenant": "other"}
        )
        shown = await client.get(f"{JOBS}/{made.json()['id']}")

    assert shown.status_code == 200
    assert "idempotency_key" not in shown.json()


async def test_a_request_to_upgrade_is_answered_and_ends_the_connection() -> None:
    """What follows is of a protocol that is not spoken here, and no second request."""
    asking = b"GET /health/live HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"
    async with served() as (_, port):
        answer = await asyncio.wait_for(answered(port, asking + CLOSE), PATIENCE)

    assert answer.count(b"HTTP/1.1 ") == 1
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert b"connection: close" in answer


@pytest.mark.parametrize(
    "named", ["Authorization", "close, penstock-tenant", "idempotency-key ,close", "content-length"]
)
async def test_no_header_that_matters_ends_at_the_next_hop(named: str) -> None:
    """A proxy removes what `Connection` names: it saw another request than the service does."""
    async with asked() as client:
        answer = await client.post(JOBS, content=BODY, headers={"connection": named})
        listed = await client.get("/v1/queues")

    problem = answer.json()
    assert (answer.status_code, problem["type"]) == (400, "urn:penstock:malformed")
    assert problem["detail"].startswith("header connection: found ")
    assert listed.json() == {"queues": []}


async def test_chunks_are_of_no_request_of_http_1_0() -> None:
    """Proxies differ about where such a body ends."""
    async with served() as (_, port):
        answer = await answered(port, CHUNKED.replace(b"HTTP/1.1", b"HTTP/1.0") + b"\r\n")

    assert answer.startswith(b"HTTP/1.1 400 "), answer
    assert b"transfer-encoding" in answer


@pytest.mark.parametrize(
    "head",
    [
        b"X-Tenant: acme\r\n other\r\n",
        b"X-Tenant : other\r\n",
        b"X: a\rX-Tenant: other\r\n",
        b"Transfer-Encoding: chunked, identity\r\n",
        b"Transfer-Encoding: xchunked\r\n",
        b"Content-Length: 15, 15\r\n",
        b"Content-Length: +15\r\n",
        b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n",
    ],
)
async def test_a_head_that_two_readers_may_understand_differently_is_refused(head: bytes) -> None:
    async with served() as (_, port):
        answer = await answered(port, HEAD + head + b"Connection: close\r\n\r\n" + BODY)
        jobs = await _jobs(port, b"acme") + await _jobs(port, b"other")

    assert answer.startswith(b"HTTP/1.1 400 "), answer
    assert jobs == []
