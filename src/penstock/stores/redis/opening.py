"""What is looked at before a server is used: its version, its kind, its memory policy, what it keeps."""

import re
from collections.abc import Mapping
from typing import Final

from penstock.core.errors import ConfigError, StoreError, StoreReadOnlyError, StoreVersionError
from penstock.stores.redis import keys
from penstock.stores.redis.server import Server
from penstock.stores.values import Durability, Replication

SCHEMA_VERSION: Final = 1
_OLDEST_REDIS: Final = (7, 0)
_OLDEST_VALKEY: Final = (8, 0)
_ASKED: Final = ("maxmemory-policy", "appendonly", "appendfsync", "min-replicas-to-write")


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
    if "cluster" in (info.get("redis_mode"), info.get("server_mode")):
        await server.learn_nodes()
    elif info.get("role") == "slave":
        raise StoreReadOnlyError(f"the server at {server.url} is a replica: the url has to name the primary")
    settings = await _settings(server, info)
    policy = settings.get("maxmemory-policy", "noeviction")
    if policy != "noeviction":
        raise ConfigError(
            f"the server at {server.url} evicts keys when memory is short (maxmemory-policy {policy}), "
            "which would lose accepted jobs; set it with `CONFIG SET maxmemory-policy noeviction`, "
            "and in the server's configuration file"
        )
    written = await server.command("HGET", keys.STORE, "schema")
    if written is None:
        await server.command("HSETNX", keys.STORE, "schema", SCHEMA_VERSION)
        written = await server.command("HGET", keys.STORE, "schema")
    if (schema := int(written)) > SCHEMA_VERSION:
        raise StoreVersionError(
            f"the store at {server.url} has schema {schema}; this Penstock knows {SCHEMA_VERSION}: upgrade"
        )


async def durability(server: Server) -> Durability:
    """What an accepted job survives; the weakest that is possible where the server does not say."""
    info = await _info(server)
    if 0 < server.numbers.wait_replicas <= _replicas(info):
        return Durability.REPLICATED
    settings = await _settings(server, info)
    if settings.get("appendonly") != "yes":
        return Durability.PROCESS
    return Durability.POWER if settings.get("appendfsync") == "always" else Durability.SERVER


async def replication(server: Server) -> Replication:
    """The replicas of the server, and how many of them a write needs."""
    info = await _info(server)
    settings = await _settings(server, info)
    return Replication(
        replicas=_replicas(info),
        wait_replicas=server.numbers.wait_replicas,
        min_replicas_to_write=int(settings.get("min-replicas-to-write", 0)),
    )


async def server_version(server: Server) -> str:
    """Name and version of the server."""
    name, version = _version(await _info(server))
    return name if version is None else f"{name} {'.'.join(map(str, version))}"


async def _info(server: Server) -> Mapping[str, str]:
    try:
        info: Mapping[str, str] = await server.command("INFO")
    except ConfigError:
        return {}
    return info


async def _settings(server: Server, info: Mapping[str, str]) -> dict[str, str]:
    """The settings by CONFIG, or, where that is forbidden as with many hosts, what INFO tells of them."""
    try:
        answers = await server.commands([("CONFIG", "GET", name) for name in _ASKED])
    except ConfigError:
        return _told(info)
    except StoreError as error:
        # Hosts that have renamed or removed the command.
        if "unknown" not in str(error):
            raise
        return _told(info)
    return {name.decode(): value.decode() for name, value in filter(None, answers)}


def _replicas(info: Mapping[str, str]) -> int:
    """How many replicas have what the server has."""
    lines = (value for name, value in info.items() if re.fullmatch(r"slave\d+", name))
    return sum("state=online" in value for value in lines)


def _told(info: Mapping[str, str]) -> dict[str, str]:
    told = {"appendonly": "yes" if info.get("aof_enabled") == "1" else "no"}
    if "maxmemory_policy" in info:
        told["maxmemory-policy"] = info["maxmemory_policy"]
    # The line is there only where writes need replicas; how many, it does not say.
    if "min_slaves_good_slaves" in info:
        told["min-replicas-to-write"] = "1"
    return told


def _version(info: Mapping[str, str]) -> tuple[str, tuple[int, ...] | None]:
    is_valkey = "valkey_version" in info
    said = info.get("valkey_version" if is_valkey else "redis_version", "")
    numbers = tuple(int(part) for part in re.findall(r"\d+", said)[:3])
    return "Valkey" if is_valkey else "Redis", numbers or None
