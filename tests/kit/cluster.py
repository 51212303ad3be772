"""Clusters of servers that speak the Redis protocol: primaries, and replicas of each where wanted."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final

from redis.asyncio import Redis

from penstock.core.job import QueueRef
from penstock.stores.redis.cluster import slot_of
from tests.kit import valkey
from tests.kit.ports import free_port

SECONDS: Final = 30.0
SLOTS: Final = [(0, 5460), (5461, 10922), (10923, 16383)]


@contextmanager
def servers(
    binary: Path, folder: Path, *, count: int = 3, settings: Sequence[str] = (), appendonly: bool = False
) -> Iterator[list[valkey.Server]]:
    """Servers that can be a cluster."""
    with ExitStack() as stack:
        yield [
            stack.enter_context(
                valkey.running(
                    binary,
                    folder / str(number),
                    appendonly=appendonly,
                    settings=["--cluster-enabled", "yes", "--cluster-port", str(free_port()), *settings],
                )
            )
            for number in range(count)
        ]


@asynccontextmanager
async def joined(nodes: Sequence[valkey.Server]) -> AsyncIterator[list[Redis]]:
    """An operator for each node of a cluster that is whole: three primaries, and then their replicas."""
    operators = [Redis.from_url(node.url) for node in nodes]
    try:
        for number, (node, operator) in enumerate(zip(nodes, operators, strict=True)):
            if number < len(SLOTS):
                await tell(operator, "CLUSTER", "ADDSLOTSRANGE", *SLOTS[number])
            bus = (await operator.config_get("cluster-port"))["cluster-port"]
            await tell(operators[0], "CLUSTER", "MEET", "127.0.0.1", node.port, bus)
        await _until_whole(operators)
        for number, replica in enumerate(operators[len(SLOTS) :]):
            primary = (await tell(operators[number], "CLUSTER", "MYID")).decode()
            await tell(replica, "CLUSTER", "REPLICATE", primary)
        for replica in operators[len(SLOTS) :]:
            await _until_linked(replica)
        yield operators
    finally:
        for operator in operators:
            await operator.aclose()


async def tell(operator: Redis, *command: Any) -> Any:
    """One command in the server's own words."""
    return await operator.execute_command(*command)  # type: ignore[no-untyped-call] # the client's


def slot_of_queue(queue: QueueRef) -> int:
    """The slot that has all keys of the queue."""
    return slot_of(f"{queue.tenant}/{queue.name}".encode())


def node_of_slot(slot: int) -> int:
    """The number of the primary that has the slot at first."""
    return next(number for number, (first, last) in enumerate(SLOTS) if first <= slot <= last)


def node_of(queue: QueueRef) -> int:
    """The number of the primary that has the queue at first."""
    return node_of_slot(slot_of_queue(queue))


async def _until_whole(operators: Sequence[Redis]) -> None:
    looks = 0
    async with asyncio.timeout(SECONDS):
        # Nodes that have just met may part once more.
        while looks < 3:
            whole = [await _is_whole(operator, len(operators)) for operator in operators]
            looks = looks + 1 if all(whole) else 0
            await asyncio.sleep(0.1)


async def _until_linked(replica: Redis) -> None:
    async with asyncio.timeout(SECONDS):
        while (await replica.info("replication")).get("master_link_status") != "up":  # noqa: ASYNC110
            await asyncio.sleep(0.1)


async def _is_whole(operator: Redis, count: int) -> bool:
    """Every node serves, and hears every other: what is published goes over the links between them."""
    info = (await tell(operator, "CLUSTER", "INFO")).decode()
    known = (await tell(operator, "CLUSTER", "NODES")).decode().splitlines()
    are_linked = all(" connected" in line and "handshake" not in line for line in known)
    return "cluster_state:ok" in info and len(known) == count and are_linked
