"""The broker connects to what is allowed, and nothing that comes from inside upsets it."""

import errno
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from penstock.sandbox.broker import Broker, Refusal, Request, _is_public
from penstock.sandbox.permissions import Permissions


@contextmanager
def listening() -> Iterator[int]:
    """The port of a socket that takes connections."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen()
        yield sock.getsockname()[1]


@contextmanager
def broker(*net: str) -> Iterator[Broker]:
    """One for these entries."""
    made = Broker(Permissions(net=net).addresses)
    yield made
    made.close()


def ask(asked: Broker, message: bytes) -> tuple[bytes, list[int]]:
    """What the broker answers; its turn is taken here."""
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            socket.send_fds(asked.inside, [message], [theirs.fileno()])
        assert asked.serve()
        ours.settimeout(10)
        said, descriptors, _, _ = socket.recv_fds(ours, 4096, 1)
    return said, descriptors


def request(host: str, port: int) -> bytes:
    """As the shim sends it."""
    return msgspec.json.encode(Request(host, port, 5))


def test_an_allowed_address_is_connected() -> None:
    """By number and by name."""
    with listening() as port, broker(f"127.0.0.1:{port}", f"localhost:{port}") as asked:
        for host in ("127.0.0.1", "localhost", "LOCALHOST."):
            said, descriptors = ask(asked, request(host, port))
            with socket.socket(fileno=descriptors[0]) as connected:
                assert said == b"+"
                assert connected.getpeername() == ("127.0.0.1", port)


@pytest.mark.parametrize("net", ["localhost:1", "*.localhost:*", "other:*"])
def test_what_no_entry_allows_is_refused(net: str) -> None:
    """Before anything is resolved."""
    with listening() as port, broker(net) as asked:
        said, descriptors = ask(asked, request("localhost", port))
    refusal = msgspec.json.decode(said, type=Refusal)
    assert not descriptors
    assert refusal.errno == errno.EACCES
    assert refusal.text == f"localhost:{port} is not among the permissions"


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "::ffff:127.0.0.1"])
def test_a_star_means_public_addresses(host: str) -> None:
    """What is reachable only from here has to be named: a star is no way to the neighbours."""
    with listening() as port, broker(f"*:{port}") as asked:
        said, descriptors = ask(asked, request(host, port))
    refusal = msgspec.json.decode(said, type=Refusal)
    assert not descriptors
    assert refusal.errno == errno.EACCES
    assert "not public" in refusal.text


@pytest.mark.parametrize(
    ("address", "is_public"),
    [
        ("8.8.8.8", True),
        ("2606:4700::1111", True),
        ("::ffff:8.8.8.8", True),
        ("64:ff9b::808:808", True),
        ("2002:808:808::1", True),
        ("10.0.0.7", False),
        ("224.0.0.1", False),
        ("fe80::1%1", False),
        ("::ffff:10.0.0.7", False),
        ("64:ff9b::7f00:1", False),
        ("64:ff9b:1::808:808", False),
        ("::127.0.0.1", False),
        ("::8.8.8.8", False),
        ("2002:7f00:1::1", False),
        ("2001:0:7f00:1::1", False),
    ],
)
def test_an_address_that_carries_another_counts_as_that_one(address: str, is_public: bool) -> None:
    """A gateway would turn it into the one inside; where that is not sure, it is not public."""
    assert _is_public(address) is is_public


def test_a_name_that_is_none_is_unreachable() -> None:
    """The error of the lookup becomes one that clients know."""
    with broker("*:80") as asked:
        said, _ = ask(asked, request("no-such-host.invalid", 80))
    assert msgspec.json.decode(said, type=Refusal).errno == errno.EHOSTUNREACH


@pytest.mark.parametrize(
    "message", [b"x", b"{}", b"[1,2,3]", b'["a",1]', b"\xff" * 100, b'["a","b","c"]', b"[" * 4000]
)
def test_nonsense_is_answered_by_silence(message: bytes) -> None:
    """And the next request is served."""
    with listening() as port, broker(f"127.0.0.1:{port}") as asked:
        assert ask(asked, message) == (b"", [])
        _, descriptors = ask(asked, request("127.0.0.1", port))
        os.close(descriptors[0])


def test_a_reply_to_something_that_is_no_socket_is_dropped() -> None:
    """Whatever descriptor comes with a request."""
    with listening() as port, broker(f"127.0.0.1:{port}") as asked:
        with Path(os.devnull).open("rb") as file:
            socket.send_fds(asked.inside, [request("127.0.0.1", port)], [file.fileno()])
            assert asked.serve()
        asked.inside.send(request("127.0.0.1", port))
        assert asked.serve()
        _, descriptors = ask(asked, request("127.0.0.1", port))
        os.close(descriptors[0])


def test_the_line_ends_with_the_last_process_inside() -> None:
    """Then there is nobody to serve."""
    with broker("a:1") as asked:
        asked.inside.close()
        assert not asked.serve()
