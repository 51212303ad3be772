"""From a url to what the driver needs, and what may be shown of it."""

import re
from typing import Any, Final
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlencode, urlsplit

import msgspec
import psycopg
from psycopg.conninfo import conninfo_to_dict

from penstock.core.errors import ConfigError
from penstock.settings import seconds
from penstock.stores.postgres.sources import SCHEMA

_PORT: Final = re.compile(r":[0-9]+$")
_NAME: Final = re.compile(r"[a-z_][a-z0-9_]{0,62}")
_SECRETS: Final = frozenset({"password", "sslpassword"})
_TIMES: Final = frozenset({"pool_timeout", "connect_timeout", "answer_timeout"})
_MOST: Final = 1_000
_LAST_PORT: Final = 65_535


class Numbers(msgspec.Struct, frozen=True, kw_only=True):
    """What can be set after the question mark, besides what the driver knows. Times in seconds."""

    connections: int = 10
    """At most so many at once, not counting the one that listens."""
    pool_timeout: float = 4.0
    """How long a call waits for a connection that is free."""
    connect_timeout: float = 4.0
    answer_timeout: float = 10.0
    """After so long the connection is closed. The server gives up a little sooner."""


class Address(msgspec.Struct, frozen=True):
    """Where the store is. `shown` carries no secrets; `secrets` are what must not be shown.

    `role` is who the store acts as, where that is not the user of the url.
    """

    conninfo: str
    shown: str
    schema: str
    is_pooled: bool
    secrets: tuple[str, ...] = ()
    role: str | None = None
    numbers: Numbers = Numbers()


def address_of(url: str) -> Address:
    """Take the store's own options out of the url: `pooler=transaction` behind such a one, and the rest."""
    parts = _split(url)
    place = parts.netloc.rpartition("@")[2]
    user = f"{parts.username}@" if parts.username else ""
    shown = f"{parts.scheme}://{user}{place}{parts.path}"
    rest: list[tuple[str, str]] = []
    names = {"schema": SCHEMA}
    numbers: dict[str, Any] = {}
    is_pooled = False
    found = {unquote(parts.password or ""), parts.password or ""}
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name in {"schema", "role"}:
            names[name] = checked_name(name, value, shown)
        elif name == "pooler":
            if value not in {"transaction", "none"}:
                raise ConfigError(f"{shown}: found pooler={value}, wanted pooler=transaction or pooler=none")
            is_pooled = value == "transaction"
        elif name == "connections":
            if not value.isdecimal() or not 1 <= int(value) <= _MOST:
                raise ConfigError(f"{shown}: found connections={value}, wanted a number from 1 to {_MOST}")
            numbers[name] = int(value)
        elif name in _TIMES:
            numbers[name] = seconds(name, value)
            if not numbers[name]:
                raise ConfigError(f"{shown}: found {name}={value}, wanted more than nothing")
        else:
            rest.append((name, value))
            if name in _SECRETS:
                found.add(value)
    query = f"?{urlencode(rest)}" if rest else ""
    # By hand: without a host the slashes before it would be lost.
    conninfo = f"{parts.scheme}://{parts.netloc}{parts.path}{query}"
    _check(conninfo, place, shown)
    return Address(
        conninfo=conninfo,
        shown=shown,
        schema=names["schema"],
        is_pooled=is_pooled,
        secrets=tuple(sorted((each for each in found if each), key=len, reverse=True)),
        role=names.get("role"),
        numbers=Numbers(**numbers),
    )


def _split(url: str) -> SplitResult:
    """The parts of the url; ConfigError, without a word of it, where a password would end in another part."""
    scheme = url.partition(":")[0]
    try:
        parts = urlsplit(url)
    except ValueError:
        raise ConfigError(f"{scheme}://…: not a url; in a password, [ is written %5B and ] %5D") from None
    user, _, _ = parts.netloc.rpartition("@")
    is_cut = not user and not parts.path and ":" in parts.netloc and not _PORT.search(parts.netloc)
    for sign, is_loose in {
        "/": "@" in parts.path,
        "#": bool(parts.fragment),
        "?": is_cut and "@" in parts.query,
        "@": "@" in user,
    }.items():
        if is_loose:
            raise ConfigError(
                f"{scheme}://…: a {sign} out of place; in a password it is written {quote(sign, safe='')}"
            )
    return parts


def _check(conninfo: str, place: str, shown: str) -> None:
    """ConfigError for ports that are none, and for options that nobody knows."""
    for host in place.split(","):
        port = host.rpartition("]")[2].partition(":")[2]
        if port and not (port.isdecimal() and 1 <= int(port) <= _LAST_PORT):
            raise ConfigError(f"{shown}: found the port {port!r}, wanted a number from 1 to {_LAST_PORT}")
    try:
        known = conninfo_to_dict(conninfo)
    except psycopg.ProgrammingError as error:
        # It may quote any part of the url; what is wrong with an option comes first.
        said = str(error).partition("\n")[0] if "query parameter" in str(error) else "not a url of PostgreSQL"
        raise ConfigError(f"{shown}: {said}") from None
    if "options" in known:
        raise ConfigError(f"{shown}: found options=…, which the store sets itself; wanted none")


def checked_name(option: str, name: str, shown: str) -> str:
    """A name that can stand in statements; ConfigError for any other."""
    if not _NAME.fullmatch(name) or name.startswith("pg_"):
        raise ConfigError(
            f"{shown}: found {option}={name!r}, wanted small letters, digits and underscores, not pg_…"
        )
    return name
