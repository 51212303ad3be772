"""A request goes to an address that was checked, and no answer can hold it or lead it elsewhere."""

import asyncio
import ipaddress
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trustme
from msgspec.structs import replace

from penstock.core.ranges import Address
from penstock.service.egress.egress import Egress, EgressResponse
from penstock.service.egress.errors import AddressRefusedError, EgressError
from penstock.service.egress.policy import EgressPolicy
from penstock.service.egress.resolver import SystemResolver
from tests.service.egress.receiver import Receiver, receiving

LOCAL = EgressPolicy.of(allow="127.0.0.0/8", plain=True, ports="1-65535")


class Names:
    """A name server: each answer in turn, the last one for ever."""

    def __init__(self, *answers: list[str]) -> None:
        self._answers = [[ipaddress.ip_address(each) for each in answer] for answer in answers]
        self.asked: list[str] = []

    async def __call__(self, host: str, port: int) -> list[Address]:
        self.asked.append(host)
        return self._answers[min(len(self.asked), len(self._answers)) - 1]


@asynccontextmanager
async def local(*addresses: str) -> AsyncIterator[tuple[Egress, Receiver, str]]:
    """An egress for which `hooks.test` is on loopback, a receiver there, and its url."""
    names = Names(list(addresses or ("127.0.0.1",)))
    egress = Egress(LOCAL, resolve=names)
    async with receiving() as receiver:
        yield egress, receiver, f"http://hooks.test:{receiver.port}/hook?a=b"


async def post(egress: Egress, url: str) -> EgressResponse:
    return await egress.post(url, {"content-type": "application/json"}, b'{"a":1}')


async def test_a_request_arrives_as_it_was_meant() -> None:
    async with local() as (egress, receiver, url):
        answer = await post(egress, url)

    (request,) = receiver.requests
    assert answer.status == 204
    assert request.line == "POST /hook?a=b HTTP/1.1"
    assert request.headers["host"] == f"hooks.test:{receiver.port}"
    assert request.headers["content-type"] == "application/json"
    assert request.headers["connection"] == "close"
    assert request.body == b'{"a":1}'


@pytest.mark.parametrize(
    "addresses",
    [
        ["127.0.0.1"],
        ["10.0.0.1"],
        ["169.254.169.254"],
        ["192.168.1.1"],
        ["::1"],
        ["fe80::1"],
        ["fd00::1"],
        ["::ffff:127.0.0.1"],
        ["64:ff9b::a00:1"],
        ["2002:7f00:1::"],
        ["1.1.1.1", "127.0.0.1"],
        ["2606:4700:4700::1111", "::1"],
    ],
)
async def test_a_name_with_any_address_inwards_is_refused(addresses: list[str]) -> None:
    egress = Egress(EgressPolicy.of(), resolve=Names(addresses))

    with pytest.raises(AddressRefusedError, match=r"hooks\.test is not on the public internet"):
        await post(egress, "https://hooks.test/")


async def test_an_error_does_not_tell_what_a_name_means_inside() -> None:
    egress = Egress(EgressPolicy.of(), resolve=Names(["10.20.30.40"]))

    with pytest.raises(AddressRefusedError) as refused:
        await post(egress, "https://hooks.test/")

    assert "10.20.30.40" not in str(refused.value)


async def test_a_name_that_changes_its_address_is_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    names = Names(["93.184.215.14"], ["127.0.0.1"])
    went: list[str] = []

    async def connect(host: str, port: int, **more: object) -> None:
        went.append(host)
        raise ConnectionRefusedError(111, "refused")

    monkeypatch.setattr(asyncio, "open_connection", connect)
    with pytest.raises(EgressError, match="no connection to port 443"):
        await post(Egress(EgressPolicy.of(), resolve=names), "https://hooks.test/")

    assert names.asked == ["hooks.test"]
    assert went == ["93.184.215.14"]


async def test_each_request_is_checked_anew() -> None:
    async with local() as (_, receiver, url):
        names = Names(["127.0.0.1"], ["10.0.0.1"])
        egress = Egress(LOCAL, resolve=names)

        assert (await post(egress, url)).status == 204
        with pytest.raises(AddressRefusedError):
            await post(egress, url)

    assert receiver.connections == 1


async def test_an_address_where_nobody_listens_makes_way_for_the_next() -> None:
    # Loopback has many addresses, and the receiver is at one of them.
    async with local("127.0.0.9", "127.0.0.1") as (egress, receiver, url):
        assert (await post(egress, url)).status == 204

    assert receiver.connections == 1


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_followed_by_nobody(status: int) -> None:
    async with local() as (egress, receiver, url), receiving() as inside:
        place = f"http://127.0.0.1:{inside.port}/"
        receiver.answer = lambda request: f"HTTP/1.1 {status} Elsewhere\r\nLocation: {place}\r\n\r\n".encode()

        assert (await post(egress, url)).status == status

    assert (receiver.connections, inside.connections) == (1, 0)


async def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async with local() as (egress, receiver, url), receiving() as proxy:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")

        assert (await post(egress, url)).status == 204

    assert (receiver.connections, proxy.connections) == (1, 0)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"", "closed before an answer"),
        (b"HTTP/1.1 200 OK\r\n", "closed before an answer"),
        (b"HTTP/2 200\r\n\r\n", "not one of HTTP/1.1"),
        (b"SSH-2.0-OpenSSH\r\n\r\n", "not one of HTTP/1.1"),
        (b"HTTP/1.1 99 Low\r\n\r\n", "not one of HTTP/1.1"),
        (b"HTTP/1.1 600 High\r\n\r\n", "not one of HTTP/1.1"),
        (b"HTTP/1.1 101 Switching\r\n\r\n", "not one of HTTP/1.1"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"x" * 40_000 + b"\r\n\r\n", "longer than"),
        (b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 10_000 + b"\r\n", "longer than"),
        (b"x" * 100_000, "longer than"),
        (b"HTTP/1.1 100 Continue\r\n\r\n" * 100, "only interim"),
    ],
)
async def test_what_is_no_answer_is_an_error(answer: bytes, said: str) -> None:
    async with local() as (egress, receiver, url):
        receiver.answer = lambda request: answer

        with pytest.raises(EgressError, match=said):
            await post(egress, url)


async def test_interim_answers_are_passed_over_and_bodies_not_read() -> None:
    head = b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n"
    async with local() as (egress, receiver, url):
        receiver.answer = lambda request: head + b"x" * 1_000

        assert (await post(egress, url)).status == 200


async def test_an_answer_that_does_not_come_is_given_up() -> None:
    async with local() as (_, receiver, url):
        receiver.answer = lambda request: None
        egress = Egress(replace(LOCAL, timeout=0.05), resolve=Names(["127.0.0.1"]))

        with pytest.raises(EgressError, match=r"did not answer within 0\.05 s"):
            await post(egress, url)


async def test_a_name_server_that_does_not_answer_is_given_up() -> None:
    async def silence(host: str, port: int) -> list[Address]:
        await asyncio.Event().wait()
        return []

    with pytest.raises(EgressError, match="did not answer"):
        await post(Egress(replace(LOCAL, timeout=0.05), resolve=silence), "http://hooks.test/")


async def test_a_name_without_an_address_is_an_error() -> None:
    with pytest.raises(EgressError, match="has no address"):
        await post(Egress(LOCAL, resolve=Names([])), "http://hooks.test/")


async def test_a_name_that_the_system_does_not_know_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(host: str, port: int, **more: object) -> None:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    egress = Egress(LOCAL)
    with pytest.raises(EgressError, match=r"nowhere\.invalid was not found"):
        await post(egress, "http://nowhere.invalid/")


async def test_the_system_is_asked_for_addresses() -> None:
    resolver = SystemResolver()

    assert ipaddress.ip_address("127.0.0.1") in await resolver("localhost", 443)


@pytest.mark.parametrize(
    ("said", "seconds"), [("120", 120.0), ("0", 0.0), ("soon", None), ("-1", None), ("9" * 30, None)]
)
async def test_a_wish_for_a_later_time_is_heard(said: str, seconds: float | None) -> None:
    async with local() as (egress, receiver, url):
        receiver.answer = lambda request: f"HTTP/1.1 503 Busy\r\nRetry-After: {said}\r\n\r\n".encode()

        answer = await post(egress, url)

    assert (answer.status, answer.retry_after) == (503, seconds)


async def test_a_date_is_a_wish_too() -> None:
    async with local() as (egress, receiver, url):
        past = "Fri, 31 Dec 1999 23:59:59 GMT"
        receiver.answer = lambda request: f"HTTP/1.1 429 Busy\r\nretry-after: {past}\r\n\r\n".encode()

        assert (await post(egress, url)).retry_after == 0.0


async def test_a_header_that_would_split_the_request_is_not_sent() -> None:
    async with local() as (egress, receiver, url):
        for value in ("a\r\nx: y", "a\nb", "é", "\x00"):
            with pytest.raises(EgressError, match="cannot be sent"):
                await egress.post(url, {"x-note": value}, b"")

    assert receiver.connections == 0


async def test_a_server_has_to_prove_its_name() -> None:
    authority = trustme.CA()
    server, trust = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    authority.issue_cert("hooks.test").configure_cert(server)
    authority.configure_trust(trust)
    async with receiving(server) as receiver:
        egress = Egress(LOCAL, resolve=Names(["127.0.0.1"]), trust=trust)

        assert (await post(egress, f"https://hooks.test:{receiver.port}/")).status == 204
        with pytest.raises(EgressError, match="cannot be trusted"):
            await post(egress, f"https://other.test:{receiver.port}/")
        stranger = Egress(LOCAL, resolve=Names(["127.0.0.1"]))
        with pytest.raises(EgressError, match="cannot be trusted"):
            await post(stranger, f"https://hooks.test:{receiver.port}/")

    assert len(receiver.requests) == 1
