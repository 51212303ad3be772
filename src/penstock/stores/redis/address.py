"""What the url of a server or cluster says: where it is, who asks, and what connections live by."""

import re
import ssl
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import msgspec

from penstock.core.errors import ConfigError, OptionError
from penstock.core.store_url import StoreUrl, parse_url
from penstock.stores.options import options_of

_PLAIN: Final = {"redis", "valkey"}
_SECURE: Final = {"rediss", "valkeys"}
_PORT: Final = 6379


class Address(msgspec.Struct, frozen=True):
    """A host and a port, or the path of a socket."""

    host: str
    port: int = 0

    def __str__(self) -> str:
        return f"{self.host}:{self.port}" if self.port else self.host


class PoolSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What can be set after the question mark. Times in seconds."""

    connections: int = 10
    """At most so many at once, not counting the one that listens."""
    idle_connections: int | None = None
    """So many are kept open; half of `connections` unless given."""
    calls_per_connection: int = 32
    """At most so many calls wait for their replies on one connection."""
    pool_timeout: float = 4.0
    """How long a call waits for room on a connection."""
    connect_timeout: float = 4.0
    answer_timeout: float = 5.0
    idle_check: float = 30.0
    """A connection that was quiet for so long is asked whether it lives before it is used."""
    wait_replicas: int = 0
    """An enqueue is accepted when so many replicas have it."""
    wait_timeout: float = 0.5


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """All that is needed to connect. Printing it shows no password.

    `addresses` has one server, or any nodes of one cluster.
    """

    addresses: tuple[Address, ...]
    settings: PoolSettings
    username: str | None = None
    password: str | None = None
    database: int = 0
    client_name: str = "penstock"
    tls: ssl.SSLContext | None = None

    def __repr__(self) -> str:
        return f"Target({','.join(map(str, self.addresses))!r}, database={self.database})"


_WHOLE: Final = {
    "connections": (1, 1_000),
    "idle_connections": (0, 1_000),
    "calls_per_connection": (1, 1_000),
    "wait_replicas": (0, 100),
}
_TIMES: Final = {"pool_timeout", "connect_timeout", "answer_timeout", "idle_check", "wait_timeout"}
_FILES: Final = {"ca", "cert", "key"}
_OTHERS: Final = {"client_name", "check_hostname"}


def parse(url: str) -> Target:
    """The target of a url; ConfigError without its secrets when it is none."""
    parts = parse_url(url)
    if parts.scheme != "unix":
        # First: where the @ is missing, what is no port is the password.
        _ = parts.hosts
    try:
        return _parsed(parts)
    except (ValueError, OSError) as error:
        raise ConfigError(f"{parts.shown} is not a url of a Redis or Valkey server: {error}") from None


def _parsed(parts: StoreUrl) -> Target:
    options = options_of(parts, whole=_WHOLE, times=_TIMES, texts=_FILES | _OTHERS)
    addresses: tuple[Address, ...]
    settings = PoolSettings(
        **{name: value for name, value in options.items() if name in _WHOLE.keys() | _TIMES}
    )
    if parts.scheme == "unix":
        addresses, database = (Address(unquote(parts.path)),), 0
    elif parts.scheme in _PLAIN | _SECURE:
        addresses, database = _addresses(parts), _database(parts.path)
    else:
        raise ValueError(
            f"found {parts.scheme}://, wanted redis://, rediss://, valkey://, valkeys:// or unix://"
        )
    return Target(
        addresses=addresses,
        settings=settings,
        username=parts.username,
        password=parts.password or None,
        database=database,
        client_name=options.get("client_name", "penstock"),
        tls=_tls(options, is_secure=parts.scheme in _SECURE),
    )


def _addresses(parts: StoreUrl) -> tuple[Address, ...]:
    hosts = parts.hosts
    if len(hosts) > 1 and not all(host for host, _ in hosts):
        raise ValueError("found an empty address, wanted a host between commas")
    return tuple(dict.fromkeys(Address(host or "localhost", port or _PORT) for host, port in hosts))


def _database(path: str) -> int:
    if re.fullmatch(r"(/[0-9]{0,9})?", path):
        return int(path[1:] or 0)
    raise ValueError(f"its path has to be the number of a database, as in /0, or nothing; found {path!r}")


def _tls(options: dict[str, Any], *, is_secure: bool) -> ssl.SSLContext | None:
    said = options.get("check_hostname", "true")
    if said not in ("true", "false"):
        raise OptionError("check_hostname", said, "true or false")
    if not is_secure:
        if wrong := sorted(options.keys() & (_FILES | {"check_hostname"})):
            raise ValueError(f"{wrong[0]} goes with rediss:// and valkeys:// only")
        return None
    for name in _FILES & options.keys():
        if not Path(options[name]).is_file():
            raise OptionError(name, options[name], "the path of a file")
    context = ssl.create_default_context(cafile=options.get("ca"))
    context.check_hostname = said == "true"
    if "cert" in options:
        context.load_cert_chain(options["cert"], options.get("key"))
    return context
