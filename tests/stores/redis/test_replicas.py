"""Enqueues that are accepted only when replicas have them."""

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from redis import Redis as BlockingRedis
from redis.asyncio import Redis

from penstock.core.errors import NotReplicatedError, StoreReadOnlyError, StoreUnavailableError
from penstock.core.job import QueueRef
from penstock.core.outcomes import Enqueued
from penstock.stores.protocol import Store
from penstock.stores.redis import RedisStore
from penstock.stores.values import Durability, Replication
from penstock.testing.conformance.arrange import claim_one, enqueue, new_job
from tests.conformance.stores import opened
from tests.kit import valkey
from tests.kit.waiting import PATIENCE, eventually
from tests.stores.redis.operating import tell


@pytest.fixture
def replica(binary: Path, tmp_path: Path, server: valkey.Server) -> Iterator[valkey.Server]:
    """A replica of the server."""
    with BlockingRedis.from_url(server.url) as primary:
        primary.config_set("repl-diskless-sync-delay", 0)
    of = ["--replicaof", f"127.0.0.1 {server.port}"]
    with valkey.running(binary, tmp_path / "replica", settings=of) as running:
        yield running


async def test_an_enqueue_waits_until_the_replica_has_it(
    server: valkey.Server, operator: Redis, replica: valkey.Server, queue: QueueRef
) -> None:
    """When the call is back, the job stands there."""
    await _until_synced(operator)
    async with opened(RedisStore(f"{server.url}?wait_replicas=1&wait_timeout=5s")) as store:
        copy = Redis.from_url(replica.url)
        for number in range(20):
            [outcome] = await store.moves.enqueue(queue, [new_job(f"job-{number}")])
            found = await copy.keys("*")
            assert isinstance(outcome, Enqueued)
            assert found
        info = await store.health.info()
        names = sorted(await copy.keys("*"))
        await copy.aclose()

        assert info.durability is Durability.REPLICATED
        assert names == sorted(await operator.keys("*"))
        assert (await claim_one(store, queue)).id == "job-0"


async def test_a_wish_alone_makes_nothing_replicated(url: str) -> None:
    """Without as many replicas as are wished, each accepted job stands in one place."""
    async with opened(RedisStore(f"{url}?wait_replicas=1")) as store:
        assert (await store.health.info()).durability is Durability.PROCESS


async def test_too_few_replicas_are_told_and_the_job_is_there(
    server: valkey.Server, operator: Redis, replica: valkey.Server, queue: QueueRef
) -> None:
    """Enqueueing it again is harmless, and succeeds only when the replica has it."""
    await _until_synced(operator)
    job = new_job("a")
    async with opened(RedisStore(f"{server.url}?wait_replicas=1&wait_timeout=100ms")) as store:
        await _until_confirmed(store, queue)
        os.kill(replica.pid, signal.SIGSTOP)
        try:
            for _ in range(2):
                with pytest.raises(NotReplicatedError, match="0 replicas of 1 confirmed"):
                    await store.moves.enqueue(queue, [job])
        finally:
            os.kill(replica.pid, signal.SIGCONT)
        await _until_confirmed(store, queue)
        [outcome] = await store.moves.enqueue(queue, [job])
        counts = await store.reads.counts(queue)

    assert isinstance(outcome, Enqueued)
    assert sum(counts.values()) == 2


async def test_a_wish_counts_on_connections_of_its_own(
    server: valkey.Server, operator: Redis, replica: valkey.Server, queue: QueueRef
) -> None:
    """A wait holds nobody else up."""
    await _until_synced(operator)
    async with opened(RedisStore(f"{server.url}?wait_replicas=1&wait_timeout=10s&connections=1")) as store:
        await enqueue(store, queue, [new_job("first")])
        os.kill(replica.pid, signal.SIGSTOP)
        try:
            waiting = asyncio.create_task(store.moves.enqueue(queue, [new_job("a")]))

            async def are_there() -> bool:
                return sum((await store.reads.counts(queue)).values()) == 2

            await eventually(are_there)
            is_done = waiting.done()
        finally:
            os.kill(replica.pid, signal.SIGCONT)

        assert not is_done
        assert isinstance((await waiting)[0], Enqueued)


async def test_replication_is_part_of_what_the_store_says_of_itself(
    server: valkey.Server, operator: Redis, replica: valkey.Server
) -> None:
    """Also to a user who may not ask for settings: INFO says whether writes need replicas."""
    await _until_synced(operator)
    await tell(operator, "ACL", "SETUSER", "app", "on", ">pw", "~*", "&*", "+@all", "-config")
    asked = f"{server.url}?wait_replicas=1"
    forbidden = asked.replace("redis://", "redis://app:pw@")
    async with opened(RedisStore(asked)) as store, opened(RedisStore(forbidden)) as other:
        before = [(await each.health.info()).replication for each in (store, other)]
        await operator.config_set("min-replicas-to-write", 1)
        after = [(await each.health.info()).replication for each in (store, other)]

    assert before == [Replication(1, 1, 0)] * 2
    assert after == [Replication(1, 1, 1)] * 2


async def test_a_replica_is_told_from_its_primary(replica: valkey.Server, operator: Redis) -> None:
    """Before anything is written."""
    await _until_synced(operator)
    with pytest.raises(StoreReadOnlyError, match="the url has to name the primary"):
        await RedisStore(replica.url).open()


async def test_a_primary_that_was_demoted_is_left_and_found_again(
    server: valkey.Server, operator: Redis, replica: valkey.Server, queue: QueueRef
) -> None:
    """Its connections are closed: the name of the server may lead elsewhere by now."""
    await _until_synced(operator)
    async with opened(RedisStore(f"{server.url}?client_name=ours&idle_connections=0")) as store:
        await enqueue(store, queue, [new_job("a")])
        await tell(operator, "REPLICAOF", "127.0.0.1", replica.port)
        with pytest.raises(StoreUnavailableError, match="worked before and now is a replica"):
            await store.moves.enqueue(queue, [new_job("b")])

        async def are_gone() -> bool:
            return not await _clients(operator, "ours")

        await eventually(are_gone)
        await tell(operator, "REPLICAOF", "NO", "ONE")

        await enqueue(store, queue, [new_job("b")])


async def _clients(operator: Redis, name: str) -> int:
    return sum(client["name"] == name for client in await operator.client_list())


async def _until_synced(operator: Redis) -> None:
    async with asyncio.timeout(PATIENCE):
        while True:
            await operator.set("penstock:probe", "1", px=1)
            if await tell(operator, "WAIT", 1, 100):
                return


async def _until_confirmed(store: Store, queue: QueueRef) -> None:
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                await store.moves.enqueue(queue, [new_job("first")])
            except NotReplicatedError:
                continue
            return
