"""Permissions say what they mean, or what is wrong with them."""

from typing import Any

import msgspec
import pytest

from penstock.core.errors import OptionError
from penstock.sandbox.broker import matches
from penstock.sandbox.permissions import Address, Permissions


def test_nothing_is_permitted_by_default() -> None:
    """But as many processes and threads as most libraries start."""
    assert Permissions() == Permissions(read=[], write=[], net=False, env=[], run=[], processes=64)


def test_equal_permissions_are_one_key() -> None:
    """Whether given as lists or as tuples."""
    given = {Permissions(read=["/srv"], net=["a:1"]): 1, Permissions(read=("/srv",), net=("a:1",)): 2}
    assert len(given) == 1


def test_permissions_survive_being_sent() -> None:
    """A fork server gets them as JSON."""
    given = Permissions(read=["/srv"], net=["*:443"], env=["A"], memory=1 << 30)
    assert msgspec.json.decode(msgspec.json.encode(given), type=Permissions) == given


@pytest.mark.parametrize(
    ("field", "found"),
    [
        ("read", ["relative"]),
        ("read", ["/a/../b"]),
        ("read", ["/a\0"]),
        ("read", "/a"),
        ("read", [1]),
        ("write", ["~/out"]),
        ("net", True),
        ("net", ["example.org"]),
        ("net", ["example.org:0"]),
        ("net", ["example.org:70000"]),
        ("net", ["exa mple.org:80"]),
        ("net", ["*example.org:80"]),
        ("net", "example.org:80"),
        ("env", ["A=B"]),
        ("env", [""]),
        ("run", ["bin/tool"]),
        ("run", [""]),
        ("memory", 1024),
        ("memory", True),
        ("cpu_seconds", 0),
        ("cpu_seconds", 1.5),
        ("processes", 0),
        ("processes", None),
        ("file_size", -1),
    ],
)
def test_a_wrong_permission_is_named(field: str, found: Any) -> None:
    """With what was found and what is wanted."""
    with pytest.raises(OptionError) as caught:
        Permissions(**{field: found})
    assert caught.value.field == f"permissions.{field}"
    assert caught.value.wanted


@pytest.mark.parametrize(
    ("entry", "host", "port", "is_allowed"),
    [
        ("api.example.org:443", "api.example.org", 443, True),
        ("API.example.org:443", "api.example.org", 443, True),
        ("api.example.org:443", "api.example.org", 80, False),
        ("api.example.org:443", "example.org", 443, False),
        ("api.example.org:443", "api.example.org.evil.test", 443, False),
        ("*.example.org:443", "api.example.org", 443, True),
        ("*.example.org:443", "deep.api.example.org", 443, True),
        ("*.example.org:443", "example.org", 443, False),
        ("*.example.org:443", "evilexample.org", 443, False),
        ("*:443", "anything.test", 443, True),
        ("*:443", "anything.test", 22, False),
        ("10.0.0.1:*", "10.0.0.1", 5432, True),
        ("10.0.0.1:*", "10.0.0.11", 5432, False),
        ("[::1]:80", "::1", 80, True),
    ],
)
def test_an_address_matches_what_it_says(entry: str, host: str, port: int, is_allowed: bool) -> None:
    """Letters may be large or small; a star stands for one whole part or more."""
    (address,) = Permissions(net=[entry]).addresses
    assert matches(address, host, port) is is_allowed


def test_a_star_for_the_port_is_any_port() -> None:
    """And nothing else is."""
    assert Permissions(net=["db:*"]).addresses == (Address("db", None),)
