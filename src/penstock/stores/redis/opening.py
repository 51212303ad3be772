"""What is looked at before a server is used: its version, its kind, its memory policy, what it keeps."""

import re
from collections.abc import Mapping
from typing import Final

from penstock.core.errors import (
    ConfigError,
    StoreError,
    StoreReadOnlyError,
    StoreUnavailableError,
)
from penstock.stores.redis.address import Address
from penstock.stores.redis.migrate import check_schema
from penstock.stores.redis.server import Server
from penstock.stores.values import Durability, Replication

_OLDEST_REDIS: Final = (7, 0)
_OLDEST_VALKEY: Final = (8, 0)
_SETTINGS: Final = ("maxmemory-policy", "appendonly", "appendfsync", "min-replicas-to-write")
_WEAKEST_FIRST: Final = (Durability.PROCESS, Durability.SERVER, Durability.POWER, Durability.REPLICATED)


async def check_server(server: Server) -> None:
    """Refuse a server that would lose jobs, or cannot run the scripts; of a cluster, every primary.

    A primary that is away is passed over, unless all are: its own queues wait for it.
    """
    await server.command("PING")
    info = await _any_info(server)
    if "cluster" in (info.get("redis_mode"), info.get("server_mode")):
        await server.learn_nodes()
    elif info.get("role") == "slave":
        raise StoreReadOnlyError(f"the server at {server.url} is a replica: the url has to name the primary")
    elif server.addresses > 1:
        raise ConfigError(
            f"{server.url}: found {server.addresses} addresses, wanted one: "
            "the server is no node of a cluster"
        )
    for node, info, settings in await _nodes(server):
        _check_node(server, node, info, settings)
    try:
        await check_schema(server)
    except StoreUnavailableError:
        # One node of the cluster has it. Processes that start later find it again.
        if not server.is_cluster:
            raise


def _check_node(server: Server, node: str, info: Mapping[str, str], settings: Mapping[str, str]) -> None:
    name, version = _version(info)
    if version is not None and version < (_OLDEST_VALKEY if name == "Valkey" else _OLDEST_REDIS):
        raise ConfigError(
            f"the server at {node} is {name} {'.'.join(map(str, version))}; "
            "wanted Redis 7.0 or Valkey 8.0 or newer"
        )
    policy = settings.get("maxmemory-policy", "noeviction")
    if policy != "noeviction":
        raise ConfigError(
            f"the server at {node} evicts keys when memory is short (maxmemory-policy {policy}), "
            "which would lose accepted jobs; set it with `CONFIG SET maxmemory-policy noeviction`, "
            "and in the server's configuration file"
        )


async def durability(server: Server) -> Durability:
    """What an accepted job survives: the weakest of all primaries that can be reached.

    Of a primary that does not say, the weakest that is possible.
    """
    found = {_durability(server, info, settings) for _, info, settings in await _nodes(server)}
    return min(found, key=_WEAKEST_FIRST.index)


def _durability(server: Server, info: Mapping[str, str], settings: Mapping[str, str]) -> Durability:
    if 0 < server.pool_settings.wait_replicas <= _replicas(info):
        return Durability.REPLICATED
    if settings.get("appendonly") != "yes":
        return Durability.PROCESS
    return Durability.POWER if settings.get("appendfsync") == "always" else Durability.SERVER


async def replication(server: Server) -> Replication:
    """The replicas of a primary, and how many of them a write needs; of a cluster, the fewest of any."""
    nodes = await _nodes(server)
    return Replication(
        replicas=min(_replicas(info) for _, info, _ in nodes),
        wait_replicas=server.pool_settings.wait_replicas,
        min_replicas_to_write=min(int(each.get("min-replicas-to-write", 0)) for _, _, each in nodes),
    )


async def server_version(server: Server) -> str:
    """Name and version of the server; of a cluster, those of its oldest primary."""
    found = [_version(info) for _, info, _ in await _nodes(server)]
    name, version = min(found, key=lambda each: each[1] or ())
    return name if version is None else f"{name} {'.'.join(map(str, version))}"


async def _nodes(server: Server) -> list[tuple[str, Mapping[str, str], Mapping[str, str]]]:
    """What each primary that can be reached says of itself: where it is, INFO, settings."""
    found: list[tuple[str, Mapping[str, str], Mapping[str, str]]] = []
    last: StoreUnavailableError | None = None
    for node in server.primaries():
        try:
            info = await _info(server, node)
            settings = await _settings(server, node, info)
        except StoreUnavailableError as error:
            last = error
        else:
            found.append((str(node) if server.is_cluster else server.url, info, settings))
    if not found and last is not None:
        raise last
    return found


async def _any_info(server: Server) -> Mapping[str, str]:
    try:
        info: Mapping[str, str] = await server.command("INFO")
    except ConfigError:
        return {}
    return info


async def _info(server: Server, node: Address) -> Mapping[str, str]:
    try:
        info: Mapping[str, str] = (await server.node_commands(node, [("INFO",)]))[0]
    except ConfigError:
        return {}
    return info


async def _settings(server: Server, node: Address, info: Mapping[str, str]) -> dict[str, str]:
    """The settings by CONFIG, or, where that is forbidden as with many hosts, what INFO tells of them."""
    try:
        answers = await server.node_commands(node, [("CONFIG", "GET", name) for name in _SETTINGS])
    except ConfigError:
        return _settings_of(info)
    except StoreUnavailableError:
        raise
    except StoreError as error:
        # Hosts that have renamed or removed the command.
        if "unknown" not in str(error):
            raise
        return _settings_of(info)
    return {name.decode(): value.decode() for name, value in filter(None, answers)}


def _replicas(info: Mapping[str, str]) -> int:
    """How many replicas have what the server has."""
    lines = (value for name, value in info.items() if re.fullmatch(r"slave\d+", name))
    return sum("state=online" in value for value in lines)


def _settings_of(info: Mapping[str, str]) -> dict[str, str]:
    found = {"appendonly": "yes" if info.get("aof_enabled") == "1" else "no"}
    if "maxmemory_policy" in info:
        found["maxmemory-policy"] = info["maxmemory_policy"]
    # The line is there only where writes need replicas; how many, it does not say.
    if "min_slaves_good_slaves" in info:
        found["min-replicas-to-write"] = "1"
    return found


def _version(info: Mapping[str, str]) -> tuple[str, tuple[int, ...] | None]:
    is_valkey = "valkey_version" in info
    version = info.get("valkey_version" if is_valkey else "redis_version", "")
    numbers = tuple(int(part) for part in re.findall(r"\d+", version)[:3])
    return "Valkey" if is_valkey else "Redis", numbers or None
