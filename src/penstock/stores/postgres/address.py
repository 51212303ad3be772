"""From a url to the arguments of the driver, and the part of it that may be shown."""

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final
from urllib.parse import quote, unquote, urlencode

import msgspec
import psycopg
from psycopg.conninfo import conninfo_to_dict

from penstock.core.errors import ConfigError
from penstock.core.store_url import StoreUrl, parse_url, secrets_of, shown_option
from penstock.settings import seconds
from penstock.stores.postgres.sources import SCHEMA

_NAME: Final = re.compile(r"[a-z_][a-z0-9_]{0,62}")
_TIMES: Final = frozenset({"pool_timeout", "connect_timeout", "answer_timeout"})
_WHOLE: Final = {"connections": (1, 1_000), "idle_connections": (0, 1_000)}


class PoolSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The options of the url that are about connections, besides those of the driver. Times in seconds."""

    connections: int = 10
    """The most connections at once, not counting the one that listens."""
    idle_connections: int | None = None
    """How many connections are kept open; half of `connections` unless given."""
    pool_timeout: float = 4.0
    """How long a call waits for a connection that is free."""
    connect_timeout: float = 4.0
    answer_timeout: float = 10.0
    """Time after which a connection without an answer is closed. The server gives up a little sooner."""


class Address(msgspec.Struct, frozen=True):
    """Where the store is. `shown` carries no secrets; `secrets` are what must not be shown.

    `role` is the role that the store acts as, where that is not the user of the url.
    """

    conninfo: str
    shown: str
    schema: str
    is_pooled: bool
    secrets: tuple[str, ...] = ()
    role: str | None = None
    pool: PoolSettings = PoolSettings()

    def __repr__(self) -> str:
        return f"Address({self.shown!r}, schema={self.schema!r})"


def address_of(url: str) -> Address:
    """The address of a url: the store's own options, such as `pooler=transaction`, are taken out of it."""
    parts = parse_url(url)
    if "@" in parts.userinfo:
        raise ConfigError(f"{parts.scheme}://…: password: found an @, wanted it written as %40")
    # Before anything is shown: where the @ is missing, a port that is no number is the password.
    _ = parts.hosts
    shown = parts.shown
    rest: list[tuple[str, str]] = []
    names = {"schema": SCHEMA}
    pool: dict[str, Any] = {}
    is_pooled = False
    # Not decoded as forms are: to the driver a + is a +.
    for name, value in (map(unquote, each.split("=", 1)) for each in _pieces(parts)):
        if name in {"schema", "role"}:
            names[name] = checked_name(name, value, shown)
        elif name == "pooler":
            if value not in {"transaction", "none"}:
                raise ConfigError(f"{shown}: found pooler={value}, wanted pooler=transaction or pooler=none")
            is_pooled = value == "transaction"
        elif name in _WHOLE:
            least, most = _WHOLE[name]
            if not (value.isascii() and value.isdecimal()) or not least <= int(value[:10]) <= most:
                raise ConfigError(f"{shown}: found {name}={value}, wanted a number from {least} to {most}")
            pool[name] = int(value)
        elif name in _TIMES:
            pool[name] = seconds(name, value)
            if not pool[name]:
                raise ConfigError(f"{shown}: found {name}={value}, wanted more than nothing")
        else:
            rest.append((name, value))
    query = f"?{urlencode(rest, quote_via=quote, safe='')}" if rest else ""
    # Put together by hand: without a host urlunsplit would lose the slashes before it.
    before = f"{parts.userinfo}@" if parts.userinfo else ""
    conninfo = f"{parts.scheme}://{before}{parts.place}{parts.path}{query}"
    _check(conninfo, rest, parts)
    return Address(
        conninfo=conninfo,
        shown=shown,
        schema=names["schema"],
        is_pooled=is_pooled,
        secrets=secrets_of(url),
        role=names.get("role"),
        pool=PoolSettings(**pool),
    )


def _pieces(parts: StoreUrl) -> Iterator[str]:
    for each in filter(None, parts.query.split("&")):
        if "=" not in each:
            raise ConfigError(f"{parts.shown}: option: found one without a value, wanted name=value")
        yield each


def _check(conninfo: str, options: Sequence[tuple[str, str]], parts: StoreUrl) -> None:
    """ConfigError for unknown options, and for anything else that the driver cannot read."""
    known = {each.keyword.decode() for each in psycopg.pq.Conninfo.get_defaults()}
    shown = parts.shown
    for name, _ in options:
        if name == "options":
            raise ConfigError(f"{shown}: found options=…, which the store sets itself; wanted none")
        if name not in known:
            found = shown_option(name, parts.query)
            raise ConfigError(f"{shown}: option: found {found}, which PostgreSQL does not have")
    try:
        conninfo_to_dict(conninfo)
    except (psycopg.Error, UnicodeError):
        # The driver's error may quote any part of the url.
        wanted = "user, password, host, path and options, with signs of their own written as %20 and the like"
        raise ConfigError(f"{shown}: not a url of PostgreSQL; wanted {wanted}") from None


def checked_name(option: str, name: str, shown: str) -> str:
    """The name itself; ConfigError where it cannot be written into statements."""
    if not _NAME.fullmatch(name) or name.startswith("pg_"):
        raise ConfigError(
            f"{shown}: found {option}={name!r}, wanted small letters, digits and underscores, not pg_…"
        )
    return name
