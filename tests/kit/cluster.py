"""Clusters of servers that speak the Redis protocol: primaries, and replicas of each where wanted."""

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final

from redis.asyncio import Redis

from penstock.core.job import QueueRef
from penstock.stores.redis.cluster import slot_of
from tests.kit import valkey
from tests.kit.ports import free_port
from tests.kit.waiting import SLOWNESS, eventually

_NODE_TIMEOUT: Final = ("--cluster-node-timeout", f"{15_000 * SLOWNESS:.0f}")
"""Milliseconds. Half of them without an answer cut the link to a node, and lose what was published on it."""
_CHANNEL: Final = "joined"
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
                    settings=[
                        *("--cluster-enabled", "yes", "--cluster-port", str(free_port())),
                        *_NODE_TIMEOUT,
                        *settings,
                    ],
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
        await _until_heard(operators)
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
    async def are_whole() -> bool:
        return all([await _is_whole(operator, len(operators)) for operator in operators])

    await eventually(are_whole, "a cluster in which every node knows every other")


async def _until_linked(replica: Redis) -> None:
    async def is_linked() -> bool:
        return (await replica.info("replication")).get("master_link_status") == "up"

    await eventually(is_linked, "a replica that follows its primary")


async def _until_heard(operators: Sequence[Redis]) -> None:
    """Nodes that have just met may part once more: what is published at each has to reach every other."""
    heard: set[tuple[int, int]] = set()
    async with AsyncExitStack() as stack:
        ears = [await stack.enter_async_context(operator.pubsub()) for operator in operators]
        for ear in ears:
            await ear.subscribe(_CHANNEL)

        async def is_heard() -> bool:
            for number, operator in enumerate(operators):
                await operator.publish(_CHANNEL, number)
            for number, ear in enumerate(ears):
                while message := await ear.get_message():
                    if message["type"] == "message":
                        heard.add((int(message["data"]), number))
            return len(heard) == len(operators) ** 2

        await eventually(is_heard, "a notification of every node at every other")


async def _is_whole(operator: Redis, count: int) -> bool:
    """Every node serves, and hears every other: what is published goes over the links between them."""
    info = (await tell(operator, "CLUSTER", "INFO")).decode()
    known = (await tell(operator, "CLUSTER", "NODES")).decode().splitlines()
    are_linked = all(" connected" in line and "handshake" not in line for line in known)
    return "cluster_state:ok" in info and len(known) == count and are_linked
