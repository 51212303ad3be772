"""A cluster of three: each queue lives whole on one node, and calls find it there."""

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.core.errors import ConfigError, StoreUnavailableError
from penstock.core.job import QueueRef
from penstock.core.moves import Complete
from penstock.core.states import State
from penstock.stores.redis import RedisStore
from penstock.stores.redis.keys import keys_of
from penstock.stores.redis.scripts import Scripts
from penstock.stores.redis.server import Server
from penstock.stores.values import DuePage, Durability, QueueContents, Topic
from penstock.testing.conformance.arrange import claim_one, enqueue, new_job
from tests.conformance.stores import opened
from tests.kit import cluster, valkey
from tests.kit.cluster import joined, node_of, slot_of_queue
from tests.kit.waiting import PATIENCE, SLOWNESS, eventually
from tests.stores.redis.operating import tell

QUEUES = [QueueRef("t", name) for name in "abcdefgh"]
ANSWER = 2 * SLOWNESS
"""Seconds that a call waits for a node that does not answer."""


@pytest.fixture
def nodes(binary: Path, tmp_path: Path) -> Iterator[list[valkey.Server]]:
    """Three servers that can be a cluster."""
    with cluster.servers(binary, tmp_path) as running:
        yield running


async def test_queues_are_deleted_and_made_anew(nodes: list[valkey.Server]) -> None:
    """The queue, the list of its tenant and the list of all stand on different nodes."""
    async with (
        joined(nodes),
        opened(RedisStore(nodes[0].url)) as one,
        opened(RedisStore(nodes[1].url)) as other,
    ):
        numbers = [(await other.queues.open_queue(queue)).number for queue in QUEUES]
        for queue in QUEUES:
            assert await one.queues.delete_queue(queue) == QueueContents()
        listed, tenants = await one.queues.list_queues("t"), await one.queues.list_tenants()
        for queue in QUEUES:
            await enqueue(other, queue, [new_job("a")])
        again = await one.queues.list_queues("t")
        kept = await one.queues.delete_queue(QUEUES[0])

    assert (listed, tenants) == ([], [])
    assert [each.queue for each in again] == QUEUES
    assert min(each.number for each in again) > max(numbers)
    assert kept == QueueContents({State.PENDING: 1})


async def test_queues_of_a_cluster_are_used_through_anynode_of(nodes: list[valkey.Server]) -> None:
    """Enqueue, claim, settle, events, subscriptions and the fsck, for queues on every node."""
    async with (
        joined(nodes),
        opened(RedisStore(nodes[0].url)) as store,
        opened(RedisStore(nodes[2].url)) as other,
    ):
        for queue in QUEUES:
            async with other.notifier.subscribe(queue, Topic.READY) as subscription:
                await enqueue(store, queue, [new_job("a"), new_job("b")])
                assert await subscription.wait(PATIENCE)
            held = await claim_one(other, queue)
            await other.moves.settle(queue, [Complete(held.id, held.token)])
            assert (await store.reads.counts(queue))[State.COMPLETED] == 1
            assert len(await store.events.read_events(queue)) == 4
            assert await store.health.check(queue) == []
        await store.clock.advance_clock(1_000)

        assert {node_of(queue) for queue in QUEUES} == {0, 1, 2}
        assert [info.queue for info in await other.queues.list_queues("t")] == QUEUES


async def test_what_is_due_is_asked_of_every_node_and_one_that_is_gone_hides_no_other(
    nodes: list[valkey.Server],
) -> None:
    async with (
        joined(nodes),
        opened(RedisStore(f"{nodes[0].url}?answer_timeout={ANSWER}")) as store,
    ):
        for queue in QUEUES:
            await enqueue(store, queue, [new_job("a", delay_ms=1)])
        whole = await store.upkeep.due_queues("t", [queue.name for queue in QUEUES], within_ms=60_000)
        every = await store.upkeep.due_queues("t", within_ms=60_000)
        gone = node_of(QUEUES[0])
        os.kill(nodes[gone].pid, signal.SIGSTOP)
        try:
            partly = await store.upkeep.due_queues("t", [queue.name for queue in QUEUES], within_ms=60_000)
            some = await store.upkeep.claimable_queues(
                "t", [queue.name for queue in QUEUES], within_ms=60_000
            )
        finally:
            os.kill(nodes[gone].pid, signal.SIGCONT)

    names = [queue.name for queue in QUEUES]
    assert sorted(each.name for each in whole.queues) == sorted(each.name for each in every.queues) == names
    assert [each.name for each in partly.queues] == [each.name for each in QUEUES if node_of(each) != gone]
    assert partly.unreachable == [each.name for each in QUEUES if node_of(each) == gone]
    assert list(some.queues) == [each.name for each in QUEUES if node_of(each) != gone]
    assert some.unreachable == partly.unreachable


async def test_a_call_follows_a_slot_that_moved(nodes: list[valkey.Server]) -> None:
    """Whoever has not heard of it is sent on."""
    queue = QUEUES[0]
    async with joined(nodes) as operators, opened(RedisStore(nodes[0].url)) as store:
        await enqueue(store, queue, [new_job("a")])
        slot = slot_of_queue(queue)
        ids = [(await tell(operator, "CLUSTER", "MYID")).decode() for operator in operators]
        old, new = node_of(queue), (node_of(queue) + 1) % 3
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
        await store.moves.settle(queue, [Complete(held.id, held.token)])

        assert (await store.reads.counts(queue))[State.COMPLETED] == 1
        assert await store.health.check(queue) == []


async def test_a_node_that_is_away_takes_only_its_own_queues_with_it(
    nodes: list[valkey.Server],
) -> None:
    """The store was opened through another one."""
    async with joined(nodes) as operators, opened(RedisStore(nodes[0].url)) as store:
        for operator in operators:
            await operator.config_set("cluster-require-full-coverage", "no")
        for queue in QUEUES:
            await enqueue(store, queue, [new_job("a")])
        away = next(queue for queue in QUEUES if node_of(queue) == 2)
        here = next(queue for queue in QUEUES if node_of(queue) == 1)
        os.kill(nodes[2].pid, signal.SIGKILL)

        with pytest.raises(StoreUnavailableError):
            await store.reads.counts(away)
        assert (await claim_one(store, here)).id == "a"


@pytest.mark.parametrize("gone", [0, 1, 2])
async def test_queues_of_other_nodes_go_on_whichever_node_is_away(
    nodes: list[valkey.Server], gone: int
) -> None:
    """Also where that node is the one of the url, or has the lists of queues or the clock's offset."""
    here = [queue for queue in QUEUES if node_of(queue) != gone]
    async with joined(nodes) as operators, opened(RedisStore(nodes[gone].url)) as store:
        for operator in operators:
            await operator.config_set("cluster-require-full-coverage", "no")
        await store.clock.advance_clock(1_000)
        for queue in QUEUES:
            await enqueue(store, queue, [new_job("a", delay_ms=3_600_000)])
        await store.upkeep.due_queues("t")
        before = await store.clock.now()
        os.kill(nodes[gone].pid, signal.SIGKILL)

        assert await store.clock.now() >= before
        page = await store.upkeep.due_queues("t", within_ms=7_200_000)
        assert sorted(each.name for each in page.queues) == [queue.name for queue in here]
        every = ",".join(f"127.0.0.1:{node.port}" for node in nodes)
        async with opened(RedisStore(f"redis://{every}/0")) as other:
            await other.clock.now()
            await other.health.info()
            for queue in here:
                assert (await other.queues.open_queue(queue)).number
                await enqueue(other, queue, [new_job("b")])
                held = await claim_one(other, queue)
                await other.moves.settle(queue, [Complete(held.id, held.token)])
            with pytest.raises(StoreUnavailableError):
                await other.queues.open_queue(next(queue for queue in QUEUES if node_of(queue) == gone))


@pytest.mark.parametrize("number", [0, 1, 2])
async def test_every_primary_is_looked_at_before_a_cluster_is_used(
    nodes: list[valkey.Server], number: int
) -> None:
    """What one node evicts or does not keep is lost, whatever the others do."""
    async with joined(nodes) as operators:
        for operator in operators:
            await operator.config_set("appendonly", "yes")
        async with opened(RedisStore(nodes[0].url)) as store:
            kept = (await store.health.info()).durability
            await operators[number].config_set("appendonly", "no")
            weakest = (await store.health.info()).durability
        for operator in operators:
            # A server that writes its first append-only file does not end when it is told to.
            await operator.config_set("appendonly", "no")
        await operators[number].config_set("maxmemory-policy", "allkeys-lru")

        with pytest.raises(ConfigError, match=f"127.0.0.1:{nodes[number].port} evicts keys"):
            await RedisStore(nodes[0].url).open()

    assert (kept, weakest) == (Durability.SERVER, Durability.PROCESS)


async def test_a_node_that_does_not_answer_holds_up_no_call_to_another_for_long(
    nodes: list[valkey.Server],
) -> None:
    """A frozen node keeps its connections: the first calls wait for a reply, those after it do not."""
    here = [queue for queue in QUEUES if node_of(queue) != 2]
    async with (
        joined(nodes) as operators,
        opened(RedisStore(f"{nodes[2].url}?answer_timeout={ANSWER}&connect_timeout={ANSWER}")) as store,
    ):
        for operator in operators:
            await operator.config_set("cluster-require-full-coverage", "no")
        for queue in QUEUES:
            await enqueue(store, queue, [new_job("a")])

        async def at_once() -> DuePage | None:
            """What is due, unless the node that does not answer was waited for."""
            try:
                async with asyncio.timeout(ANSWER / 2):
                    await store.clock.now()
                    return await store.upkeep.due_queues("t", [queue.name for queue in QUEUES])
            except TimeoutError:
                return None

        async def is_back() -> bool:
            return not (await store.upkeep.due_queues("t", [queue.name for queue in QUEUES])).unreachable

        os.kill(nodes[2].pid, signal.SIGSTOP)
        try:
            await store.upkeep.due_queues("t", [queue.name for queue in QUEUES])
            page = await eventually(at_once, "an answer of the other nodes")
            reached = [(await claim_one(store, queue)).id for queue in here]
        finally:
            os.kill(nodes[2].pid, signal.SIGCONT)
        await eventually(is_back, "an answer of the node that goes on")

    assert page.unreachable == [queue.name for queue in QUEUES if node_of(queue) == 2]
    assert reached == ["a"] * len(here)


async def _fields(url: str, key: str | bytes) -> int:
    server = Server(url, Scripts())
    server.open()
    try:
        return int(await server.command("HLEN", key))
    finally:
        await server.close()
