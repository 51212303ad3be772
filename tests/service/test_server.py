"""The server at its socket: what is slow, too large or forged is refused, and others are served."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from penstock.core.errors import ConfigError
from penstock.service.app import Service
from penstock.service.limits import Limits
from penstock.service.server import Server, listen
from penstock.stores.memory import MemoryStore
from tests.kit.waiting import until
from tests.service.kit import HeaderAuthenticator

LIVE = b"GET /health/live HTTP/1.1\r\nHost: x\r\n\r\n"


@asynccontextmanager
async def served(limits: Limits | None = None) -> AsyncIterator[tuple[Server, int]]:
    """A server on a free port of this machine."""
    service = Service(MemoryStore(), authenticator=HeaderAuthenticator(), limits=limits)
    with listen("127.0.0.1", 0) as bound:
        async with service:
            server = Server(service, grace=5)
            serving = asyncio.create_task(server.serve([bound]))
            await until(lambda: server.started)
            try:
                yield server, bound.getsockname()[1]
            finally:
                server.stop()
                await serving


async def answered(port: int, data: bytes) -> bytes:
    """All that comes back until the server hangs up."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    try:
        return await reader.read()
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


CLOSE = b"GET /health/live HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


@pytest.mark.parametrize(
    ("data", "status"),
    [
        pytest.param(CLOSE, 200, id="good"),
        pytest.param(b"GET /health/live HTTP/1.1\r\nx: " + b"a" * 40_000, 431, id="endless header"),
        pytest.param(b"GET /" + b"a" * 40_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", 431, id="long path"),
        pytest.param(
            b"GET / HTTP/1.1\r\n" + b"".join(b"h%d: 1\r\n" % n for n in range(100)) + b"\r\n",
            431,
            id="many headers",
        ),
        pytest.param(b"nonsense\r\n\r\n", 400, id="no HTTP"),
        pytest.param(b"GET http://[ HTTP/1.1\r\nHost: x\r\n\r\n", 400, id="no address"),
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400, id="TLS"),
        pytest.param(
            LIVE[:-2] + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            400,
            id="length and chunks",
        ),
        pytest.param(
            LIVE[:-2] + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd", 400, id="two lengths"
        ),
        pytest.param(LIVE[:-2] + b"Content-Length: -1\r\n\r\n", 400, id="negative length"),
        pytest.param(
            LIVE[:-2] + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n", 400, id="odd encoding"
        ),
        pytest.param(LIVE[:-2] + b"Bad Header: 1\r\n\r\n", 400, id="space in a name"),
        pytest.param(LIVE[:-2] + b" folded: 1\r\n\r\n", 400, id="folded"),
        pytest.param(LIVE[:-2] + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", 400, id="chunks of nothing"),
    ],
)
async def test_what_is_no_proper_request_ends_the_connection(data: bytes, status: int) -> None:
    async with served() as (_, port):
        answer = await answered(port, data)

    assert answer.startswith(b"HTTP/1.1 %d " % status), answer


async def test_a_head_that_comes_slowly_is_refused_while_others_are_served() -> None:
    async with served(Limits(head_timeout=0.05)) as (_, port):
        silent = answered(port, b"")
        slow = answered(port, b"GET /health/live HTTP/1.1\r\nHost:")
        pipelined = answered(port, LIVE + b"GET /health/live HTTP/1.1\r\nHo")
        good = answered(port, CLOSE)
        answers = await asyncio.gather(silent, slow, pipelined, good)

    assert [answer.rpartition(b"HTTP/1.1 ")[2][:3] for answer in answers] == [b"408"] * 3 + [b"200"]


async def test_the_time_for_the_next_head_begins_with_its_first_byte() -> None:
    async with served(Limits(head_timeout=0.05)) as (_, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(LIVE)
        await reader.readuntil(b'{"status":"ok"}')
        writer.write(b"\r\n")
        rest = await reader.read()
        writer.close()

    assert rest.startswith(b"HTTP/1.1 408 ")


@pytest.mark.parametrize("limits", [Limits(head_timeout=0.05), Limits(body_bytes=20)], ids=["time", "bytes"])
async def test_the_rest_of_a_request_that_was_answered_is_passed_over_within_bounds(limits: Limits) -> None:
    chunk = b"5\r\nhello\r\n"
    async with served(limits) as (_, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(LIVE[:-2] + b"Transfer-Encoding: chunked\r\n\r\n" + chunk)
        answer = await reader.readuntil(b'{"status":"ok"}')
        writer.write(chunk * 10)
        rest = await reader.read()
        writer.close()

    assert answer.startswith(b"HTTP/1.1 200 ")
    assert rest == b""


async def test_a_connection_serves_on_after_a_request_that_was_answered_early() -> None:
    async with served() as (_, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST /nowhere HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n")
        refused = await reader.readuntil(b"}")
        writer.write(b"0123456789" + CLOSE)
        rest = await reader.read()
        writer.close()

    assert refused.startswith(b"HTTP/1.1 404 ")
    assert rest.startswith(b"HTTP/1.1 200 ")


async def test_pipelined_requests_are_answered_in_their_order() -> None:
    asking = b"".join(
        b"GET /health/live HTTP/1.1\r\nHost: x\r\nX-Request-Id: n%d\r\n\r\n" % n for n in range(3)
    )
    async with served() as (_, port):
        answer = await answered(port, asking + CLOSE)

    assert [answer.index(b"x-request-id: n%d" % n) for n in range(3)] == sorted(
        answer.index(b"x-request-id: n%d" % n) for n in range(3)
    )
    assert answer.count(b"HTTP/1.1 200 ") == 4


@pytest.mark.parametrize(
    "more",
    [b"nonsense\r\n\r\n", b"GET / HTTP/1.1\r\nHost:", b"GET http://[ HTTP/1.1\r\nHost: x\r\n\r\n"],
    ids=["forged", "slow", "no address"],
)
async def test_a_refusal_never_passes_for_the_answer_to_the_request_before(more: bytes) -> None:
    body = b'{"worker":"w","wait":60}'
    polling = (
        b"POST /v1/queues/mail/claims HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        b"Content-Length: %d\r\n\r\n%s" % (len(body), body)
    )
    async with served(Limits(head_timeout=0.05)) as (_, port):
        answer = await answered(port, polling + more)

    assert answer == b""


async def test_a_stop_answers_what_runs_and_ends_what_waits() -> None:
    body = b'{"worker":"w","wait":60}'
    asking = (
        b"POST /v1/queues/mail/claims HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        b"Content-Length: %d\r\n\r\n%s" % (len(body), body)
    )
    async with served() as (server, port):
        polling = asyncio.create_task(answered(port, asking))
        await until(lambda: server.service.waiting)
    answer = await polling

    assert answer.startswith(b"HTTP/1.1 200 ")
    assert answer.endswith(b'{"jobs":[]}')


def test_a_port_that_is_taken_is_a_configuration_error() -> None:
    with listen("127.0.0.1", 0) as bound:
        port = bound.getsockname()[1]
        with pytest.raises(ConfigError, match=f"port {port}"):
            listen("127.0.0.1", port)
