"""What is looked at before a server is used: its version, its memory policy, what it keeps."""

import re
from collections.abc import Mapping
from typing import Any, Final

from penstock.core.errors import ConfigError, StoreError, StoreVersionError
from penstock.stores.protocol import Durability
from penstock.stores.redis import keys
from penstock.stores.redis.server import Server

SCHEMA_VERSION: Final = 1
_OLDEST_REDIS: Final = (7, 0)
_OLDEST_VALKEY: Final = (8, 0)
_ASKED: Final = ("maxmemory-policy", "appendonly", "appendfsync")


async def check_server(server: Server) -> None:
    """Refuse a server that would lose jobs, or cannot run the scripts."""
    await server.command("PING")
    info = await _info(server)
    name, version = _version(info)
    if version is not None and version < (_OLDEST_VALKEY if name == "Valkey" else _OLDEST_REDIS):
        raise ConfigError(
            f"the server at {server.url} is {name} {'.'.join(map(str, version))}; "
            "wanted Redis 7.0 or Valkey 8.0 or newer"
        )
    policy = (await _settings(server, info)).get("maxmemory-policy", "noeviction")
    if policy != "noeviction":
        raise ConfigError(
            f"the server at {server.url} evicts keys when memory is short (maxmemory-policy {policy}), "
            "which would lose accepted jobs; set it with `CONFIG SET maxmemory-policy noeviction`, "
            "and in the server's configuration file"
        )
    await server.command("HSETNX", keys.STORE, "schema", SCHEMA_VERSION)
    written = int(await server.command("HGET", keys.STORE, "schema"))
    if written > SCHEMA_VERSION:
        raise StoreVersionError(
            f"the store at {server.url} has schema {written}; this Penstock knows {SCHEMA_VERSION}: upgrade"
        )


async def durability(server: Server) -> Durability:
    """What an accepted job survives; the weakest that is possible where the server does not say."""
    settings = await _settings(server, await _info(server))
    if settings.get("appendonly") != "yes":
        return Durability.PROCESS
    return Durability.POWER if settings.get("appendfsync") == "always" else Durability.SERVER


async def server_version(server: Server) -> str:
    """Name and version of the server."""
    name, version = _version(await _info(server))
    return name if version is None else f"{name} {'.'.join(map(str, version))}"


async def _info(server: Server) -> Mapping[str, Any]:
    try:
        info: Mapping[str, Any] = await server.command("INFO")
    except ConfigError:
        return {}
    return info


async def _settings(server: Server, info: Mapping[str, Any]) -> dict[str, str]:
    """The settings by CONFIG, or, where that is forbidden as with many hosts, what INFO tells of them."""
    try:
        answer = [await server.command("CONFIG", "GET", name) for name in _ASKED]
    except ConfigError:
        return _told(info)
    except StoreError as error:
        # Hosts that have renamed or removed the command.
        if "unknown" not in str(error):
            raise
        return _told(info)
    return {pair[0].decode(): pair[1].decode() for pair in map(_pair, answer) if pair}


def _pair(answer: Any) -> tuple[bytes, bytes] | None:
    found = [part for item in answer.items() for part in item] if isinstance(answer, Mapping) else answer
    return (found[0], found[1]) if found else None


def _told(info: Mapping[str, Any]) -> dict[str, str]:
    told = {"appendonly": "yes" if info.get("aof_enabled") in (1, "1") else "no"}
    if "maxmemory_policy" in info:
        told["maxmemory-policy"] = str(info["maxmemory_policy"])
    return told


def _version(info: Mapping[str, Any]) -> tuple[str, tuple[int, ...] | None]:
    is_valkey = "valkey_version" in info
    said = str(info.get("valkey_version" if is_valkey else "redis_version", ""))
    numbers = tuple(int(part) for part in re.findall(r"\d+", said)[:3])
    return "Valkey" if is_valkey else "Redis", numbers or None
