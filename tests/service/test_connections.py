"""Connections at their limit: a client that waits gives way to a new one, and health is always answered."""

import asyncio
import contextlib
import json
import resource
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator

import msgspec
import pytest

from penstock.core.errors import OptionError
from penstock.core.job import QueueRef
from penstock.core.states import State
from penstock.service.app import Service
from penstock.service.connections import peer_of
from penstock.service.errors import QuotaError
from penstock.service.limits import Limits, limits_of
from penstock.service.server import Server
from penstock.service.tenants.quota_repository import Quota, QuotaRepository
from penstock.service.tenants.quotas import StoredQuotas
from penstock.settings import ServeSettings
from penstock.stores.memory import MemoryStore
from penstock.stores.values import EVERYONE
from tests.kit.intercepted import InterceptedStore
from tests.kit.waiting import PATIENCE, until
from tests.service.kit import HeaderAuthenticator, client_of
from tests.service.test_server import CLOSE, LIVE, answered, served

MOST = 20
READY = b"GET /health/ready HTTP/1.1\r\nHost: x\r\n\r\n"
QUEUES = b"GET /v1/queues HTTP/1.1\r\nHost: x\r\n\r\n"
PATIENT = Limits(
    connections=MOST, streams=MOST, head_timeout=600, body_timeout=600, send_timeout=600, body_bytes=1 << 20
)
"""Nothing times out while a test runs: what is closed was closed to make room."""
OTHER_PEER = "127.0.0.7"


def request(
    body: bytes, *, tenant: str = "acme", path: str = "/v1/queues/mail/jobs", more: str = ""
) -> bytes:
    head = (
        f"POST {path} HTTP/1.1\r\nHost: x\r\nX-Tenant: {tenant}\r\nContent-Type: application/json\r\n{more}"
    )
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


JSON = {"content-type": "application/json"}
POLL = b'{"worker":"w","wait":60}'


def poll(tenant: str = "acme") -> bytes:
    return request(POLL, tenant=tenant, path="/v1/queues/mail/claims")


SLOW_BODY = request(b"{" * 100)[:-50]
WAITING_FOR_CONTINUE = request(b"{" * 100, more="Expect: 100-continue\r\n")[:-100]


class Crowd:
    """Connections of one peer address that are held open."""

    def __init__(self, server: Server, port: int, peer: str) -> None:
        self._server = server
        self._port = port
        self._peer = peer
        self.held: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def connect(self, data: bytes = b"") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """One more connection, known to the server."""
        before = set(self._server.server_state.connections)
        stream = await asyncio.open_connection("127.0.0.1", self._port, local_addr=(self._peer, 0))
        self.held.append(stream)
        await until(lambda: self._server.server_state.connections - before or stream[0].at_eof())
        stream[1].write(data)
        return stream

    async def request(self, data: bytes) -> bytes:
        """The answer to a request whose connection stays open, or nothing when it was closed."""
        reader, _ = await self.connect(data)
        return await head_of(reader)


async def head_of(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionResetError):
        return b""


@contextlib.asynccontextmanager
async def crowded(limits: Limits = PATIENT) -> AsyncIterator[tuple[Server, Crowd, Crowd]]:
    """A server, a hostile peer and another one; their connections are closed at the end."""
    async with served(limits) as (server, port):
        hostile, other = Crowd(server, port, OTHER_PEER), Crowd(server, port, "127.0.0.1")
        try:
            yield server, hostile, other
        finally:
            for _, writer in hostile.held + other.held:
                writer.transport.abort()


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="silent"),
        pytest.param(b"GET /health/live HTTP/1.1\r\nX-Slow: ", id="part of a head"),
        pytest.param(LIVE, id="idle after an answer"),
        pytest.param(QUEUES, id="idle after an answer to a token"),
        pytest.param(SLOW_BODY, id="part of a body"),
        pytest.param(WAITING_FOR_CONTINUE, id="body not sent after 100 Continue"),
        pytest.param(
            b"POST /nowhere HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n", id="refused, body not sent"
        ),
    ],
)
async def test_clients_that_keep_the_server_waiting_shut_nobody_out(data: bytes) -> None:
    async with crowded() as (_, hostile, other):
        for _ in range(2 * MOST):
            reader, _writer = await hostile.connect(data)
            if data in {LIVE, QUEUES}:
                await head_of(reader)
        answers = [
            await other.request(LIVE),
            await other.request(READY),
            await other.request(request(b'{"task":"t"}')),
        ]

    assert [answer[9:12] for answer in answers] == [b"200", b"200", b"201"]


async def test_the_peer_with_most_connections_gives_way_and_the_other_one_keeps_its_own() -> None:
    async with crowded() as (server, hostile, other):
        reader, writer = await other.connect(LIVE)
        await head_of(reader)
        silent, _ = await other.connect()
        for _ in range(2 * MOST):
            await hostile.connect()
        writer.write(QUEUES)
        again = await head_of(reader)

        assert b"200" in again
        assert not silent.at_eof()
        assert len(server.server_state.connections) <= MOST + 1


async def test_what_runs_is_never_closed_to_make_room() -> None:
    async with crowded() as (server, hostile, other):
        reader, _ = await other.connect(poll())
        await until(lambda: server.service.waiting)
        for _ in range(2 * MOST):
            await hostile.connect()
        server.service.stop()

        assert b"200" in await head_of(reader)


async def test_health_is_answered_though_every_connection_is_in_use() -> None:
    async with crowded() as (server, hostile, other):
        for _ in range(MOST):
            await hostile.connect(poll())
        await until(lambda: len(server.service.waiting) == MOST)
        live, ready = await other.request(LIVE), await other.request(READY)
        refused = await other.request(QUEUES)
        for _ in range(3 * MOST):
            await hostile.connect()
        late = await other.request(LIVE)

    assert [answer[9:12] for answer in (live, ready, late)] == [b"200"] * 3
    assert b"connection: close" in live
    assert refused.startswith(b"HTTP/1.1 503 ")
    assert b"retry-after: 1\r\n" in refused


@pytest.mark.parametrize("pipelined", [1, 3])
async def test_a_client_that_never_reads_its_answer_loses_its_connection(pipelined: int) -> None:
    """Also when the server has closed the connection already and only waits until the answer is taken."""
    asked = b"GET /v1/openapi.json HTTP/1.1\r\nHost: x\r\nConnection: %s\r\n\r\n"
    limits = Limits(send_timeout=0.05)
    async with served(limits) as (server, port):
        deaf = socket.socket()
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        deaf.connect(("127.0.0.1", port))
        await until(lambda: server.server_state.connections)
        for connection in server.server_state.connections:
            own = connection.transport.get_extra_info("socket")
            own.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_096)
        deaf.sendall(asked % b"keep-alive" * (pipelined - 1) + asked % b"close")
        async with asyncio.timeout(PATIENCE):
            await until(lambda: not server.server_state.connections)
        deaf.close()


async def test_clients_that_never_read_give_way_to_others() -> None:
    asked = b"GET /v1/openapi.json HTTP/1.1\r\nHost: x\r\n\r\n" * 30
    async with crowded() as (server, hostile, other):
        for _ in range(2 * MOST):
            reader, _ = await hostile.connect(asked)
            reader._transport.pause_reading()  # type: ignore[attr-defined]
        answer = await other.request(LIVE)
        buffered = [each.transport.get_write_buffer_size() for each in server.server_state.connections]

    assert answer[9:12] == b"200"
    assert sum(buffered) < 2 * MOST * (1 << 20)


async def test_requests_that_are_pipelined_without_end_end_the_connection() -> None:
    async with crowded() as (server, hostile, _):
        _, writer = await hostile.connect(poll())
        await until(lambda: server.service.waiting)
        held = next(iter(server.server_state.connections))
        writer.write(LIVE * 5_000)
        await until(lambda: held.pipeline or held.transport.is_closing())  # type: ignore[union-attr]

        assert len(held.pipeline) <= 100  # type: ignore[union-attr]


async def test_a_refusal_of_a_later_body_never_passes_for_the_answer_to_the_request_before() -> None:
    garbage = b"POST /v1/queues/mail/jobs HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"
    async with served() as (_, port):
        answer = await answered(port, poll() + garbage)

    assert answer == b""


@contextlib.contextmanager
def few_files(
    number: int, module: str, *arguments: str
) -> Iterator[tuple[subprocess.Popen[str], dict[str, str]]]:
    """A service in a process that may open so many files."""

    def bound() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (number, number))

    with subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=bound,
    ) as process:
        try:
            assert process.stdout is not None
            yield process, json.loads(process.stdout.readline())
        finally:
            process.kill()


async def test_a_service_without_file_descriptors_left_makes_room_for_new_connections() -> None:
    with few_files(64, "tests.service.few_files") as (process, said):
        port = int(said["port"])
        held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(150)]
        async with asyncio.timeout(PATIENCE):
            answers = [await answered(port, CLOSE) for _ in range(3)]
        for _, writer in held:
            writer.transport.abort()
        process.terminate()
        _, logged = process.communicate(timeout=PATIENCE)

    assert [answer[9:12] for answer in answers] == [b"200"] * 3
    assert 0 < logged.count("file descriptors") < 5
    assert "Traceback" not in logged


async def test_serve_keeps_its_connections_below_the_number_of_files_it_may_open(tmp_path: object) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    with few_files(128, "penstock.cli", "serve", "--url", url, "--port", "0", "--json") as (process, said):
        port = int(said["address"].rpartition(":")[2])
        held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(200)]
        async with asyncio.timeout(PATIENCE):
            answers = [await answered(port, each) for each in (CLOSE, CLOSE.replace(b"live", b"ready"))]
        for _, writer in held:
            writer.transport.abort()
        process.terminate()
        _, logged = process.communicate(timeout=PATIENCE)

    assert [answer[9:12] for answer in answers] == [b"200"] * 2
    assert "file descriptors" in logged
    assert "Traceback" not in logged


async def test_a_peer_without_a_token_has_a_bound_of_its_own_and_one_with_a_token_has_none() -> None:
    limits = msgspec.structs.replace(PATIENT, connections=100, connections_per_peer=5)
    async with crowded(limits) as (server, hostile, other):
        for _ in range(10):
            await hostile.request(QUEUES)
        known = len(server.admission)
        for _ in range(10):
            await hostile.connect()

        assert known == 10
        assert len(server.admission) == known + 5
        assert (await other.request(LIVE))[9:12] == b"200"


async def test_new_clients_have_time_to_show_their_tokens_though_idle_ones_fill_the_limit() -> None:
    async with crowded() as (_, hostile, other):
        for _ in range(MOST):
            await hostile.request(QUEUES)
        first, writer = await other.connect()
        await other.connect()
        writer.write(QUEUES)

        assert (await head_of(first))[9:12] == b"200"


async def test_a_tenant_holds_its_share_of_streams_and_others_theirs() -> None:
    limits = msgspec.structs.replace(PATIENT, streams=10, streams_per_tenant=4)
    async with crowded(limits) as (server, hostile, other):
        for _ in range(4):
            await hostile.connect(poll("greedy"))
        await until(lambda: len(server.service.waiting) == 4)
        refused = await hostile.request(poll("greedy"))
        await other.connect(poll())
        await until(lambda: len(server.service.waiting) == 5)

    assert refused[9:12] == b"429"
    assert b"retry-after: 1" in refused


async def test_a_quota_says_how_many_streams_a_tenant_holds_and_else_the_service_does() -> None:
    store = MemoryStore()
    await QuotaRepository(store.key_value).set("large", Quota(streams=3))
    quotas = StoredQuotas(store, streams=1)
    async with quotas.stream("large"), quotas.stream("large"), quotas.stream("small"):
        with pytest.raises(QuotaError, match="may hold 1"):
            async with quotas.stream("small"):
                pytest.fail("a second stream began")
        async with quotas.stream(EVERYONE), quotas.stream(EVERYONE):
            pass


async def test_when_all_streams_are_taken_the_tenant_with_most_gives_its_oldest_one_to_another() -> None:
    limits = msgspec.structs.replace(PATIENT, streams=3)
    async with crowded(limits) as (server, hostile, other):
        oldest, _ = await hostile.connect(poll("greedy"))
        await until(lambda: len(server.service.waiting) == 1)
        for number in (2, 3):
            await hostile.connect(poll("greedy"))
            await until(lambda number=number: len(server.service.waiting) == number)  # type: ignore[misc]
        await other.connect(poll())
        ended = await head_of(oldest)
        body = await oldest.readexactly(len(b'{"jobs":[]}'))
        of = Counter(request.principal.tenant for request in server.service.waiting)
        again = await hostile.request(poll("greedy"))

    assert ended[9:12] == b"200"
    assert body == b'{"jobs":[]}'
    assert of == {"greedy": 2, "acme": 1}
    assert again[9:12] == b"429"


class Slow(InterceptedStore):
    """Counts the jobs of no queue until it is told to go on."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0
        self.goes_on = asyncio.Event()

    async def counts(self, queue: QueueRef) -> dict[State, int]:
        self.asked += 1
        await self.goes_on.wait()
        return await self.real.reads.counts(queue)


async def test_a_tenant_has_so_many_requests_handled_at_once_beside_its_streams() -> None:
    store = Slow()
    service = Service(store, authenticator=HeaderAuthenticator(), limits=Limits(requests_per_tenant=2))
    async with service, client_of(service) as client:
        for tenant in ("acme", "other"):
            await store.real.queues.open_queue(QueueRef(tenant, "mail"))
        polls = []
        for number in (1, 2, 3):
            polling = client.post("/v1/queues/mail/claims", content=POLL, headers=JSON)
            polls.append(asyncio.create_task(polling))
            await until(lambda number=number: len(service.waiting) == number)  # type: ignore[misc]
        held = [asyncio.create_task(client.get("/v1/queues/mail")) for _ in range(2)]
        await until(lambda: store.asked == 2)
        refused = await client.get("/v1/queues/mail")
        elsewhere = asyncio.create_task(client.get("/v1/queues/mail", headers={"x-tenant": "other"}))
        await until(lambda: store.asked == 3)
        live = await client.get("/health/live")
        store.goes_on.set()
        answers = await asyncio.gather(*held, elsewhere)
        again = await client.get("/v1/queues/mail")
        service.stop()
        await asyncio.gather(*polls)

    assert refused.status_code == 429
    assert refused.headers["retry-after"] == "1"
    assert [each.status_code for each in (live, *answers, again)] == [200] * 5


@pytest.mark.parametrize(
    ("address", "peer"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:0:1:2:3:4:5", "2001:db8:0:1::"),
        ("fe80::1%eth0", "fe80::"),
        (None, "local"),
        ("", "local"),
        ("a name", "a name"),
    ],
)
def test_a_peer_is_an_address_or_a_network_that_one_client_has(address: str | None, peer: str) -> None:
    assert peer_of(address) == peer


def test_limits_that_are_not_given_follow_from_the_connections() -> None:
    settings = ServeSettings()

    assert limits_of() == Limits()
    assert settings.connections == Limits().connections
    assert limits_of(connections=40) == msgspec.structs.replace(
        Limits(),
        connections=40,
        connections_per_peer=8,
        connections_per_tenant=20,
        requests_per_tenant=10,
        streams=20,
        streams_per_tenant=10,
    )
    with pytest.raises(OptionError, match="streams: found 40"):
        limits_of(connections=40, streams=40)
