"""Whatever is sent to the service, it answers no 5xx, keeps its memory, and serves the others."""

import gzip
import json
import os
import random
import selectors
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final

import pytest

from tests.reliability.serving import LIMITS, PATIENCE, Serving, serving

pytestmark = pytest.mark.torture

ROOM: Final = 100 << 20
"""Bytes of memory that abuse may cost for a while."""
CHUNK: Final = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
HOST: Final = b"Host: service\r\n"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """One service, that outlives all of it."""
    with serving(tmp_path_factory.mktemp("service")) as found:
        yield found


@pytest.fixture
def service(running: Serving) -> Iterator[Serving]:
    """The service, which serves others as well at the end, in about the memory it had."""
    running.works()
    before = running.memory
    yield running
    running.works()
    grown = running.memory - before
    print(f"memory: {before >> 20} MiB, and {grown >> 20} more")

    assert grown < ROOM


def test_random_requests_by_the_document_are_never_a_fault(chance: random.Random, scale: float) -> None:
    """20,000 requests, fit and unfit, on as many processes as there are processors."""
    count, crew = round(20_000 * scale), min(4, os.cpu_count() or 1)
    command = [sys.executable, "-m", "tests.reliability.fuzzing"]
    crews = [
        subprocess.Popen(
            [*command, str(chance.randrange(2**31)), str(count // crew)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for _ in range(crew)
    ]
    statuses: Counter[int] = Counter()
    wrong: list[str] = []
    for each in crews:
        told, complaints = each.communicate()
        assert each.returncode == 0, complaints[-2_000:].decode()
        said = json.loads(told)
        statuses.update({int(status): number for status, number in said["statuses"].items()})
        wrong += said["wrong"]
    print(f"answers by status: {dict(sorted(statuses.items()))}")

    assert wrong == []
    assert statuses.total() >= count // crew * crew
    assert statuses[200] > 0
    assert statuses[400] > 0


@pytest.mark.parametrize(
    ("length", "start"),
    [
        (None, b""),
        (None, b"GET /health/live HTTP/1.1\r\n" + HOST + b"X-Slow: "),
        (b"Content-Length: 9999", b""),
        (b"Transfer-Encoding: chunked", b"ffff\r\n"),
    ],
    ids=["silent", "head", "body", "chunk"],
)
def test_who_sends_drop_by_drop_is_cut_off_and_others_are_served(
    service: Serving, length: bytes | None, start: bytes
) -> None:
    start = start if length is None else _post(service, length) + start
    slow = [service.connect() for _ in range(LIMITS.connections - 20)]
    for each in slow:
        each.sendall(start)
    with selectors.DefaultSelector() as left:
        for each in slow:
            left.register(each, selectors.EVENT_READ)
        until = time.monotonic() + PATIENCE
        while left.get_map() and time.monotonic() < until:
            service.works()
            for key, _ in left.select(0.1):
                if _is_over(key.fileobj):
                    left.unregister(key.fileobj)
            for key in list(left.get_map().values()):
                _drop(key.fileobj, b"x" if start else b"")

        assert not left.get_map()
    for each in slow:
        each.close()


def test_a_body_without_end_is_refused(service: Serving) -> None:
    with service.connect() as flood:
        flood.sendall(_post(service, b"Transfer-Encoding: chunked"))
        sent = _until_refused(flood, lambda: CHUNK)

    assert sent < ROOM


def test_a_body_that_is_announced_too_large_is_refused_before_it_comes(service: Serving) -> None:
    with service.connect() as flood:
        flood.sendall(_post(service, b"Content-Length: 99999999999"))

        assert _answer(flood)[0] == 413


@pytest.mark.parametrize(
    "flood",
    [
        lambda: (f"X-{number}: y\r\n".encode() for number in range(10**9)),
        lambda: (b"X: y\r\n" for _ in range(10**9)),
        lambda: (b"X-Long: " if number == 0 else b"x" * 4_096 for number in range(10**9)),
        lambda: (b" folded\r\n" if number else b"X: y\r\n" for number in range(10**9)),
    ],
    ids=["many", "same", "long", "folded"],
)
def test_headers_without_end_are_refused(service: Serving, flood: Callable[[], Iterator[bytes]]) -> None:
    with service.connect() as stream:
        stream.sendall(b"GET /health/live HTTP/1.1\r\n" + HOST)
        lines = flood()
        sent = _until_refused(stream, lambda: b"".join(next(lines) for _ in range(100)))

    assert sent < ROOM


def test_a_path_without_end_is_refused(service: Serving) -> None:
    with service.connect() as stream:
        stream.sendall(b"GET /")

        assert _until_refused(stream, lambda: b"x" * 4_096) < ROOM


INNER: Final = b"GET /smuggled HTTP/1.1\r\n" + HOST + b"\r\n"
SMUGGLED: Final = {
    "both lengths": b"Content-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + INNER,
    "both, the other way": b"Transfer-Encoding: chunked\r\nContent-Length: 6\r\n\r\n0\r\n\r\n" + INNER,
    "two lengths": b"Content-Length: 0\r\nContent-Length: %d\r\n\r\n" % len(INNER) + INNER,
    "a list of lengths": b"Content-Length: 0, %d\r\n\r\n" % len(INNER) + INNER,
    "a signed length": b"Content-Length: +%d\r\n\r\n" % len(INNER) + INNER,
    "a negative length": b"Content-Length: -1\r\n\r\n" + INNER,
    "a length in base sixteen": b"Content-Length: 0x10\r\n\r\n" + INNER,
    "a length with a blank": b"Content-Length: 1 0\r\n\r\n" + INNER,
    "an empty length": b"Content-Length: \r\n\r\n" + INNER,
    "a huge length": b"Content-Length: 99999999999999999999999\r\n\r\n" + INNER,
    "an unknown coding": b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" + INNER,
    "chunked before another": b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n" + INNER,
    "chunked twice": b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n" + INNER,
    "a blank before the colon": b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n" + INNER,
    "a name with a control": b"Transfer-\x0bEncoding: chunked\r\n\r\n0\r\n\r\n" + INNER,
    "a value with a null": b"X: a\x00b\r\nContent-Length: 0\r\n\r\n" + INNER,
    "a bare carriage return": b"X: a\rContent-Length: 0\r\n\r\n" + INNER,
    "a size that is none": b"Transfer-Encoding: chunked\r\n\r\nzz\r\n\r\n" + INNER,
    "a size that overflows": b"Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff1\r\nx\r\n0\r\n\r\n"
    + INNER,
    "a signed size": b"Transfer-Encoding: chunked\r\n\r\n+1\r\nx\r\n0\r\n\r\n" + INNER,
    "a chunk too long": b"Transfer-Encoding: chunked\r\n\r\n1\r\nxy\r\n0\r\n\r\n" + INNER,
}


@pytest.mark.parametrize("smuggled", SMUGGLED.values(), ids=SMUGGLED)
def test_a_request_within_another_is_not_heard(service: Serving, smuggled: bytes) -> None:
    head = b"POST /health/live HTTP/1.1\r\n" + HOST + b"Content-Type: application/json\r\n"
    with service.connect() as stream:
        stream.sendall(head + smuggled)
        heard = _rest(stream)

    assert heard.count(b"HTTP/1.1 ") == 1, heard
    assert heard.startswith(b"HTTP/1.1 4"), heard
    assert b"/smuggled" not in heard


@pytest.mark.parametrize("depth", [1_000, 100_000, 400_000])
@pytest.mark.parametrize("shape", [(b"[", b"]"), (b'{"a":', b"}")], ids=["lists", "objects"])
def test_json_without_bottom_is_refused(service: Serving, shape: tuple[bytes, bytes], depth: int) -> None:
    opened, closed = shape
    deep = opened * depth + b"1" + closed * depth
    deep = deep if len(deep) < LIMITS.body_bytes // 2 else opened * (LIMITS.body_bytes // 2 // len(opened))
    for body in (deep, b'{"task": "send", "payload": {"a": ' + deep + b"}}"):
        status, said = service.ask("POST", "/v1/queues/mail/jobs", body)

        # More values than a body may have are refused before they are looked at.
        assert status == (400 if depth <= LIMITS.json_values else 413), said


def test_a_packed_body_is_not_unpacked(service: Serving) -> None:
    bomb = gzip.compress(b" " * (200 << 20), 9)
    for coding in ("gzip", "deflate", "br", "gzip, gzip"):
        status, _ = service.ask("POST", "/v1/jobs", bomb, **{"content-encoding": coding})

        assert status == 415


def test_who_asks_and_does_not_listen_is_cut_off(service: Serving) -> None:
    asked = b"GET /openapi.json HTTP/1.1\r\n" + HOST + b"\r\n"
    before, deaf = service.memory, []
    for _ in range(50):
        stream = service.connect()
        stream.setblocking(False)
        deaf.append(stream)
    for _ in range(50):
        service.works()
        for stream in deaf:
            _drop(stream, asked * 20)
    held = service.memory
    for stream in deaf:
        stream.close()

    assert held - before < ROOM


def test_more_connections_than_there_is_room_for_are_refused_until_some_end(service: Serving) -> None:
    crowd = [service.connect() for _ in range(2 * LIMITS.connections)]
    for each in crowd:
        each.close()
    until = time.monotonic() + PATIENCE
    while service.ask("GET", "/health/live")[0] == 503 and time.monotonic() < until:
        pass

    service.works()


def test_noise_is_no_request(service: Serving, chance: random.Random) -> None:
    for _ in range(200):
        with service.connect() as stream:
            _drop(stream, chance.randbytes(chance.randrange(1, 5_000)) + b"\r\n\r\n")
            heard = _rest(stream)

        assert heard == b"" or heard.startswith(b"HTTP/1.1 4"), heard


def _post(service: Serving, length: bytes) -> bytes:
    about = f"Authorization: Bearer {service.token}\r\nContent-Type: application/json\r\n".encode()
    return b"POST /v1/jobs HTTP/1.1\r\n" + HOST + about + length + b"\r\n\r\n"


def _until_refused(stream: socket.socket, more: Callable[[], bytes]) -> int:
    """Bytes that were sent before the other side closed."""
    sent = 0
    until = time.monotonic() + PATIENCE
    try:
        while time.monotonic() < until:
            part = more()
            stream.sendall(part)
            sent += len(part)
    except OSError:
        return sent
    raise AssertionError(f"{sent} bytes were taken")


def _drop(stream: object, data: bytes) -> None:
    assert isinstance(stream, socket.socket)
    try:
        stream.send(data)
    except OSError:
        return


def _is_over(stream: object) -> bool:
    assert isinstance(stream, socket.socket)
    try:
        return stream.recv(65_536) == b""
    except OSError:
        return True


def _answer(stream: socket.socket) -> tuple[int, bytes]:
    heard = _rest(stream)
    return int(heard[9:12] or 0), heard


def _rest(stream: socket.socket) -> bytes:
    """All that is said until the other side closes."""
    heard = b""
    try:
        while part := stream.recv(65_536):
            heard += part
    except ConnectionResetError:
        pass
    return heard
