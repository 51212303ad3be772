"""A cluster of three: each queue lives whole on one node, and calls find it there."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import pytest
from redis.asyncio import Redis

from penstock.core.errors import StoreUnavailableError
from penstock.core.job import QueueRef
from penstock.core.moves import Complete
from penstock.core.states import State
from penstock.stores.redis import RedisStore
from penstock.stores.redis.cluster import slot_of
from penstock.stores.redis.keys import keys_of
from penstock.stores.redis.scripts import Scripts
from penstock.stores.redis.server import Server
from penstock.stores.values import QueueContents, Topic
from tests.conformance.arrange import claim_one, enqueue, new_job
from tests.conformance.stores import opened
from tests.kit import valkey
from tests.kit.ports import free_port
from tests.stores.redis.operating import tell

SECONDS = 20.0
SLOTS = [(0, 5460), (5461, 10922), (10923, 16383)]
QUEUES = [QueueRef("t", name) for name in "abcdefgh"]


@pytest.fixture
def nodes(binary: Path, tmp_path: Path) -> Iterator[list[valkey.Server]]:
    """Three servers that can be a cluster."""
    with ExitStack() as stack:
        yield [
            stack.enter_context(valkey.running(binary, tmp_path / str(number), settings=_settings()))
            for number in range(3)
        ]


@asynccontextmanager
async def joined(nodes: list[valkey.Server]) -> AsyncIterator[list[Redis]]:
    """An operator for each node of a cluster that is whole."""
    operators = [Redis.from_url(node.url) for node in nodes]
    try:
        for node, operator, (first, last) in zip(nodes, operators, SLOTS, strict=True):
            await tell(operator, "CLUSTER", "ADDSLOTSRANGE", first, last)
            bus = (await operator.config_get("cluster-port"))["cluster-port"]
            await tell(operators[0], "CLUSTER", "MEET", "127.0.0.1", node.port, bus)
        async with asyncio.timeout(SECONDS):
            looks = 0
            # Nodes that have just met may part once more.
            while looks < 3:
                looks = looks + 1 if all([await _is_whole(operator) for operator in operators]) else 0
                await asyncio.sleep(0.1)
        yield operators
    finally:
        for operator in operators:
            await operator.aclose()


async def test_queues_are_deleted_and_made_anew(nodes: list[valkey.Server]) -> None:
    """The queue, the list of its tenant and the list of all stand on different nodes."""
    async with (
        joined(nodes),
        opened(RedisStore(nodes[0].url)) as one,
        opened(RedisStore(nodes[1].url)) as other,
    ):
        numbers = [(await other.open_queue(queue)).number for queue in QUEUES]
        for queue in QUEUES:
            assert await one.delete_queue(queue) == QueueContents()
        listed, tenants = await one.queues("t"), await one.tenants()
        for queue in QUEUES:
            await enqueue(other, queue, [new_job("a")])
        again = await one.queues("t")
        kept = await one.delete_queue(QUEUES[0])

    assert (listed, tenants) == ([], [])
    assert [each.queue for each in again] == QUEUES
    assert min(each.number for each in again) > max(numbers)
    assert kept == QueueContents({State.PENDING: 1})


async def test_queues_of_a_cluster_are_used_through_any_node(nodes: list[valkey.Server]) -> None:
    """Enqueue, claim, settle, events, bells and the fsck, for queues on every node."""
    async with (
        joined(nodes),
        opened(RedisStore(nodes[0].url)) as store,
        opened(RedisStore(nodes[2].url)) as other,
    ):
        heard = 0
        for queue in QUEUES:
            async with other.bell(queue, Topic.READY) as bell:
                await enqueue(store, queue, [new_job("a"), new_job("b")])
                # A node that has just met another may lose a ring on its way: bells are hints.
                heard += await bell.wait(2.0)
            held = await claim_one(other, queue)
            await other.settle(queue, [Complete(held.id, held.token)])
            assert (await store.counts(queue))[State.COMPLETED] == 1
            assert len(await store.events(queue)) == 4
            assert await store.check(queue) == []
        await store.turn(1_000)

        assert heard > len(QUEUES) // 2
        assert {_node(queue) for queue in QUEUES} == {0, 1, 2}
        assert [info.queue for info in await other.queues("t")] == QUEUES


async def test_what_is_due_is_asked_of_every_node_and_one_that_is_gone_hides_no_other(
    nodes: list[valkey.Server],
) -> None:
    async with (
        joined(nodes),
        opened(RedisStore(f"{nodes[0].url}?answer_timeout=2")) as store,
    ):
        for queue in QUEUES:
            await enqueue(store, queue, [new_job("a", delay_ms=1)])
        whole = await store.due_queues("t", [queue.name for queue in QUEUES], within_ms=60_000)
        every = await store.due_queues("t", within_ms=60_000)
        gone = _node(QUEUES[0])
        os.kill(nodes[gone].pid, signal.SIGSTOP)
        try:
            partly = await store.due_queues("t", [queue.name for queue in QUEUES], within_ms=60_000)
            some = await store.claimable_queues("t", [queue.name for queue in QUEUES], within_ms=60_000)
        finally:
            os.kill(nodes[gone].pid, signal.SIGCONT)

    names = [queue.name for queue in QUEUES]
    assert sorted(each.name for each in whole.queues) == sorted(each.name for each in every.queues) == names
    assert [each.name for each in partly.queues] == [each.name for each in QUEUES if _node(each) != gone]
    assert partly.unreachable == [each.name for each in QUEUES if _node(each) == gone]
    assert list(some.queues) == [each.name for each in QUEUES if _node(each) != gone]
    assert some.unreachable == partly.unreachable


async def test_a_call_follows_a_slot_that_moved(nodes: list[valkey.Server]) -> None:
    """Whoever has not heard of it is sent on."""
    queue = QUEUES[0]
    async with joined(nodes) as operators, opened(RedisStore(nodes[0].url)) as store:
        await enqueue(store, queue, [new_job("a")])
        slot = _slot(queue)
        ids = [(await tell(operator, "CLUSTER", "MYID")).decode() for operator in operators]
        old, new = _node(queue), (_node(queue) + 1) % 3
        await tell(operators[new], "CLUSTER", "SETSLOT", slot, "IMPORTING", ids[old])
        await tell(operators[old], "CLUSTER", "SETSLOT", slot, "MIGRATING", ids[new])
        keys = await tell(operators[old], "CLUSTER", "GETKEYSINSLOT", slot, 1_000)
        address = ("127.0.0.1", nodes[new].port, "", 0, 5_000, "KEYS")
        await tell(operators[old], "MIGRATE", *address, *keys)
        # On its way: the old node has none of the keys any more, and the new one does not own the slot.
        assert await _fields(nodes[0].url, keys_of(queue).meta) > 0
        for operator in (operators[new], operators[old], operators[(new + 1) % 3]):
            await tell(operator, "CLUSTER", "SETSLOT", slot, "NODE", ids[new])

        held = await claim_one(store, queue)
        await store.settle(queue, [Complete(held.id, held.token)])

        assert (await store.counts(queue))[State.COMPLETED] == 1
        assert await store.check(queue) == []


async def test_a_node_that_is_away_takes_only_its_own_queues_with_it(
    nodes: list[valkey.Server],
) -> None:
    """The store was opened through another one."""
    async with joined(nodes) as operators, opened(RedisStore(nodes[0].url)) as store:
        for operator in operators:
            await operator.config_set("cluster-require-full-coverage", "no")
        for queue in QUEUES:
            await enqueue(store, queue, [new_job("a")])
        away = next(queue for queue in QUEUES if _node(queue) == 2)
        here = next(queue for queue in QUEUES if _node(queue) == 1)
        os.kill(nodes[2].pid, signal.SIGKILL)

        with pytest.raises(StoreUnavailableError):
            await store.counts(away)
        assert (await claim_one(store, here)).id == "a"


def _settings() -> list[str]:
    return ["--cluster-enabled", "yes", "--cluster-port", str(free_port())]


async def _fields(url: str, key: str | bytes) -> int:
    server = Server(url, Scripts())
    server.connect()
    try:
        return int(await server.command("HLEN", key))
    finally:
        await server.close()


async def _is_whole(operator: Redis) -> bool:
    """Every node serves, and hears every other: what is published goes over the links between them."""
    info = (await tell(operator, "CLUSTER", "INFO")).decode()
    known = (await tell(operator, "CLUSTER", "NODES")).decode().splitlines()
    are_linked = all(" connected" in line and "handshake" not in line for line in known)
    return "cluster_state:ok" in info and len(known) == 3 and are_linked


def _slot(queue: QueueRef) -> int:
    return slot_of(f"{queue.tenant}/{queue.name}".encode())


def _node(queue: QueueRef) -> int:
    return next(number for number, (first, last) in enumerate(SLOTS) if first <= _slot(queue) <= last)
