"""What goes wrong between a store and its service becomes one of Penstock's own errors, without secrets."""

import asyncio
import ssl
from pathlib import Path

import pytest
import trustme

from penstock.core.errors import (
    ConfigError,
    CursorLostError,
    DeclarationError,
    InvalidNameError,
    PenstockError,
    PoolTimeoutError,
    StoreError,
    StoreFormatError,
    StoreFullError,
    StoreTimeoutError,
    StoreUnavailableError,
    StoreVersionError,
)
from penstock.stores.remote import RemoteStore
from penstock.stores.remote.address import PoolSettings
from tests.kit.clock import turned_clock
from tests.kit.waiting import PATIENCE, until
from tests.stores.remote.kit import HELLO, answer, opened, packed, problem, saying

HTML, PROBLEM = "text/html", "application/problem+json"
FAULT = {"wanted": "w", "found": "f", "pointer": "/jobs/3/id"}
ANSWERS = {
    "another token is wanted": (problem(401), StoreUnavailableError, "worked before"),
    "a scope is missing": (problem(403), ConfigError, "does not let this token"),
    "a quota is used up": (problem(429), StoreUnavailableError, "cannot serve now"),
    "it stops": (problem(503), StoreUnavailableError, "cannot serve now"),
    "it failed": (problem(500), StoreError, "failed"),
    "it is older": (problem(404), StoreFormatError, "does not have"),
    "too large": (problem(413), StoreError, "failed"),
    "a full store": (problem(507, error="StoreFullError"), StoreFullError, "the service at"),
    "a late store": (problem(503, error="StoreTimeoutError"), StoreTimeoutError, "the service at"),
    "a declaration": (problem(409, "differs", error="DeclarationError"), DeclarationError, "^differs$"),
    "a name": (
        problem(400, error="InvalidNameError", errors=[FAULT]),
        InvalidNameError,
        r"^jobs\[3\]\.id: found f, wanted w$",
    ),
    "no error of ours": (problem(500, error="os.system"), StoreError, "failed"),
    "a proxy without service": (answer(502, b"<html>", HTML), StoreUnavailableError, "answers 502"),
    "another site": (answer(404, b"<html>", HTML), StoreFormatError, "not a service"),
    "a problem that is none": (answer(400, b"{", PROBLEM), StoreFormatError, "answers 400"),
    "a redirect": (answer(308, more="location: https://else\r\n"), ConfigError, "elsewhere"),
    "no HTTP": (b"+PONG\r\n", StoreUnavailableError, "not one of HTTP"),
    "a cut answer": (packed(5)[:-1], StoreUnavailableError, "cannot be reached"),
    "a head without end": (
        b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 40_000,
        StoreUnavailableError,
        "the head of the answer",
    ),
}


@pytest.mark.parametrize("name", ANSWERS)
async def test_an_answer_becomes_an_error_of_its_kind(name: str) -> None:
    said, kind, words = ANSWERS[name]

    async def say(_: str, __: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(said)
        await writer.drain()
        writer.close()

    async with saying(say) as url, opened(url.replace("//", "//s3cret@")) as store:
        with pytest.raises(kind, match=words) as caught:
            await store.clock.now()

    assert type(caught.value) is kind
    assert "s3cret" not in str(caught.value)


async def test_what_was_trimmed_comes_with_the_error() -> None:
    async def say(_: str, __: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(problem(410, "gone", error="CursorLostError", trimmed=[1, 7]))

    async with saying(say) as url, opened(url) as store:
        with pytest.raises(CursorLostError) as caught:
            await store.clock.now()

    assert (str(caught.value), caught.value.trimmed) == ("gone", (1, 7))


async def test_an_answer_of_another_version_is_told_as_such() -> None:
    async def say(_: str, __: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(packed("soon"))

    async with saying(say) as url, opened(url) as store:
        with pytest.raises(StoreVersionError, match="its answer to now cannot be read"):
            await store.clock.now()


async def test_interim_answers_are_passed_over() -> None:
    async def say(_: str, __: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n" + packed(7))

    async with saying(say) as url, opened(url) as store:
        assert await store.clock.now() == 7


async def test_a_token_that_is_refused_at_first_is_the_wrong_one() -> None:
    async def say(_: str, __: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(problem(401, "no such API token"))

    async with saying(say) as url:
        with pytest.raises(ConfigError, match="does not accept the token: no such API token"):
            await RemoteStore(url, token="refused").open()


async def test_a_token_that_was_forgotten_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PENSTOCK_TOKEN", raising=False)

    async def say(_: str, __: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(problem(401))

    async with saying(say) as url, opened(url) as store:
        with pytest.raises(ConfigError, match="wants a token: set PENSTOCK_TOKEN"):
            await store.clock.now()


async def test_a_new_token_in_the_file_is_tried_before_giving_up(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("old")
    shown: list[bytes] = []

    async def say(_: str, head: bytes, writer: asyncio.StreamWriter) -> None:
        shown.append(head.split(b"Bearer ")[1].split(b"\r\n")[0])
        writer.write(packed(7) if shown[-1] == b"new" else problem(401))

    async with saying(say) as url, opened(f"{url}?token_file={file}") as store:
        with pytest.raises(StoreUnavailableError, match="does not accept the token"):
            await store.clock.now()
        file.write_text("new")

        assert await store.clock.now() == 7
        assert shown == [b"old", b"old", b"new"]


async def test_a_late_answer_is_never_taken_for_the_next_one() -> None:
    asked = asyncio.Event()
    writers: list[asyncio.StreamWriter] = []

    async def say(_: str, __: bytes, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        if len(writers) > 1:
            writer.write(packed(2))
        asked.set()

    async with saying(say) as url, opened(f"{url}?answer_timeout=500ms") as store:
        with pytest.raises(StoreTimeoutError, match="did not answer in time"):
            await store.clock.now()
        writers[0].write(packed(1))

        assert await store.clock.now() == 2


async def test_an_answer_that_keeps_coming_is_not_late_yet() -> None:
    """Its halves come in two times of the timeout."""
    asked = asyncio.Event()
    writers: list[asyncio.StreamWriter] = []

    async def say(_: str, __: bytes, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        asked.set()

    whole = packed(7)
    async with saying(say) as url, opened(url) as store:
        (connection,) = store._backend._pool._connections
        with turned_clock() as turn:
            calling = asyncio.create_task(store.clock.now())
            await asked.wait()
            before = connection._received
            writers[0].write(whole[:20])
            await until(lambda: connection._received - before == 20)
            turn(PATIENCE + 1)
            writers[0].write(whole[20:])

            assert await calling == 7


async def test_a_call_that_was_given_up_takes_its_connection_with_it() -> None:
    asked = asyncio.Event()
    writers: list[asyncio.StreamWriter] = []

    async def say(_: str, __: bytes, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        if len(writers) > 1:
            writer.write(packed(2))
        asked.set()

    async with saying(say) as url, opened(url) as store:
        call = asyncio.create_task(store.clock.now())
        await asked.wait()
        call.cancel()
        await asyncio.wait([call])

        assert await store.clock.now() == 2
        assert writers[0] is not writers[1]


async def test_calls_wait_for_a_connection_only_so_long() -> None:
    asked, done = asyncio.Event(), asyncio.Event()

    async def say(_: str, __: bytes, writer: asyncio.StreamWriter) -> None:
        asked.set()
        await done.wait()
        writer.write(packed(7))

    async with saying(say) as url, opened(f"{url}?connections=1&pool_timeout=20ms") as store:
        first = asyncio.create_task(store.clock.now())
        await asked.wait()
        with pytest.raises(PoolTimeoutError, match="nothing was sent"):
            await store.clock.now()
        done.set()

        assert await first == 7


async def test_connections_are_used_again_while_they_are_fresh() -> None:
    seen: set[asyncio.StreamWriter] = set()

    async def say(_: str, __: bytes, writer: asyncio.StreamWriter) -> None:
        seen.add(writer)
        writer.write(packed(7))

    async with saying(say) as url:
        async with opened(url) as store:
            for _ in range(5):
                await store.clock.now()
            fresh = len(seen)
        async with opened(url) as store:
            with turned_clock() as turn:
                for _ in range(3):
                    await store.clock.now()
                    turn(PoolSettings().idle_timeout + 1)

    assert fresh == 1
    assert len(seen) == 4


async def test_a_service_that_is_away_is_unavailable() -> None:
    async def say(_: str, __: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(packed(7))

    async with saying(say) as url, opened(url) as store:
        await store.clock.now()
    with pytest.raises(StoreUnavailableError, match="cannot be reached"):
        await RemoteStore(url).open()


async def test_a_certificate_has_to_be_trusted(tmp_path: Path) -> None:
    authority = trustme.CA()
    trust = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(trust)
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(HELLO)
        writer.close()

    found: list[PenstockError] = []
    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=trust)
    port = server.sockets[0].getsockname()[1]
    async with server:
        for host, query in (("localhost", ""), ("127.0.0.1", f"?ca={tmp_path}/ca.pem")):
            with pytest.raises(ConfigError, match="certificate") as caught:
                await RemoteStore(f"https://{host}:{port}{query}").open()
            found.append(caught.value)
        async with opened(f"https://localhost:{port}?ca={tmp_path}/ca.pem"):
            pass

    assert len(found) == 2
