"""From a url to what the driver needs, and what may be shown of it."""

import re
from typing import Final
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit

import msgspec

from penstock.core.errors import ConfigError
from penstock.stores.postgres.sources import SCHEMA

_NAME: Final = re.compile(r"[a-z_][a-z0-9_]{0,62}")
_SECRETS: Final = frozenset({"password", "sslpassword"})


class Address(msgspec.Struct, frozen=True):
    """Where the store is. `shown` carries no secrets; `secrets` are what must not be shown."""

    conninfo: str
    shown: str
    schema: str
    is_pooled: bool
    secrets: tuple[str, ...] = ()


def address_of(url: str) -> Address:
    """Take the store's own options out of the url: `schema`, and `pooler=transaction` behind such a one."""
    parts = urlsplit(url)
    place = parts.netloc.rpartition("@")[2]
    user = f"{parts.username}@" if parts.username else ""
    shown = f"{parts.scheme}://{user}{place}{parts.path}"
    rest: list[tuple[str, str]] = []
    schema, is_pooled = SCHEMA, False
    found = {unquote(parts.password or ""), parts.password or ""}
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name == "schema":
            schema = _checked_schema(value, shown)
        elif name == "pooler":
            if value not in {"transaction", "none"}:
                raise ConfigError(f"{shown}: found pooler={value}, wanted pooler=transaction or pooler=none")
            is_pooled = value == "transaction"
        else:
            rest.append((name, value))
            if name in _SECRETS:
                found.add(value)
    if "@" in parts.path:
        raise ConfigError(f"{parts.scheme}://…: an @ in the path; a / in a password is written %2F")
    secrets = tuple(sorted((each for each in found if each), key=len, reverse=True))
    conninfo = urlunsplit(parts._replace(query=urlencode(rest)))
    return Address(conninfo, shown, schema, is_pooled, secrets)


def _checked_schema(name: str, shown: str) -> str:
    if not _NAME.fullmatch(name) or name.startswith("pg_"):
        raise ConfigError(
            f"{shown}: found schema={name!r}, wanted small letters, digits and underscores, not pg_…"
        )
    return name
