"""Connections that are lost, calls that are cut off, servers that are full."""

import asyncio
import os
import signal
from pathlib import Path

import pytest
from redis.asyncio import Redis

from penstock.core.errors import StoreError, StoreFullError, StoreTimeoutError, StoreUnavailableError
from penstock.core.job import QueueRef
from penstock.core.moves import Complete
from penstock.core.outcomes import Applied
from penstock.core.states import State
from penstock.stores.redis import RedisStore
from penstock.testing.conformance.arrange import claim, claim_one, enqueue, new_job
from tests.conformance.stores import opened
from tests.kit import valkey
from tests.kit.waiting import PATIENCE
from tests.stores.redis.operating import tell


async def test_a_connection_that_was_killed_is_replaced(
    store: RedisStore, operator: Redis, queue: QueueRef
) -> None:
    """The call after that does not notice."""
    await enqueue(store, queue, [new_job("a")])
    await tell(operator, "CLIENT", "KILL", "SKIPME", "yes")
    await _settled()

    assert (await claim_one(store, queue)).id == "a"


@pytest.mark.parametrize("database", [0, 1])
async def test_what_a_server_with_too_many_clients_says_is_passed_on(
    url: str, operator: Redis, database: int
) -> None:
    """It hangs up after that, whatever else was asked of it."""
    await operator.config_set("maxclients", 1)

    with pytest.raises(StoreUnavailableError, match="max number of clients reached"):
        await RedisStore(f"{url.removesuffix('0')}{database}").open()


async def test_a_call_that_was_cancelled_leaves_no_answer_for_the_next_one(
    store: RedisStore, operator: Redis, queue: QueueRef
) -> None:
    """A connection with an unread answer is closed, not used again."""
    await enqueue(store, queue, [new_job(f"job-{number}") for number in range(3)])
    await tell(operator, "CLIENT", "PAUSE", 200, "ALL")
    calls = [asyncio.create_task(store.reads.get(queue, [f"job-{number}"])) for number in range(3)]
    await asyncio.sleep(0.05)  # real time: the calls go out to a server that does not answer yet
    for call in calls:
        call.cancel()
    cut_off = await asyncio.gather(*calls, return_exceptions=True)

    found = await asyncio.gather(*(store.reads.get(queue, [f"job-{number}"]) for number in range(3)))

    assert all(isinstance(each, asyncio.CancelledError) for each in cut_off)
    assert [job.id for [job] in found if job is not None] == ["job-0", "job-1", "job-2"]


async def test_a_server_that_does_not_answer_is_a_timeout(
    binary: Path, tmp_path: Path, queue: QueueRef
) -> None:
    """The call may have been applied, which the error's class says."""
    with valkey.running(binary, tmp_path) as server:
        assert server.pid is not None
        async with opened(RedisStore(f"{server.url}?answer_timeout=3&idle_connections=1")) as store:
            await enqueue(store, queue, [new_job("a")])
            os.kill(server.pid, signal.SIGSTOP)
            try:
                with pytest.raises(StoreTimeoutError):
                    await store.reads.get(queue, ["a"])
            finally:
                os.kill(server.pid, signal.SIGCONT)

            assert (await claim_one(store, queue)).id == "a"


async def test_a_server_that_went_away_is_unavailable_and_found_again(
    binary: Path, tmp_path: Path, queue: QueueRef
) -> None:
    """Without opening the store anew."""
    process, port = valkey.start(binary, tmp_path, appendonly=True)
    try:
        async with opened(RedisStore(f"redis://127.0.0.1:{port}/0")) as store:
            await enqueue(store, queue, [new_job("a")])
            process.kill()
            process.wait(PATIENCE)
            with pytest.raises(StoreUnavailableError):
                await store.reads.get(queue, ["a"])
            process, _ = valkey.start(binary, tmp_path, port=port, appendonly=True)
            # Starting it took this loop's time: only now does it learn which of its connections ended.
            await asyncio.sleep(0.1)  # real time: the ends of connections come from the kernel

            assert (await claim_one(store, queue)).id == "a"
            assert await store.health.check(queue) == []
    finally:
        valkey.stop(process)


async def test_a_full_server_refuses_new_jobs_and_lets_the_old_ones_end(
    store: RedisStore, operator: Redis, queue: QueueRef
) -> None:
    """Nothing is half written, and workers make room."""
    await enqueue(store, queue, [new_job("a"), new_job("b")])
    held = await claim_one(store, queue)
    await operator.config_set("maxmemory", 1)

    with pytest.raises(StoreFullError, match="maxmemory"):
        await store.moves.enqueue(queue, [new_job("c")])
    [outcome] = await store.moves.settle(queue, [Complete(held.id, held.token, b"{}")])
    other = await claim_one(store, queue)
    await store.moves.delete(queue, [held.id])

    assert outcome == Applied(State.COMPLETED)
    assert other.id == "b"
    assert await store.reads.get(queue, ["c"]) == [None]
    await operator.config_set("maxmemory", 0)
    assert await store.health.check(queue) == []


async def test_more_calls_than_connections_wait_for_their_turn(store: RedisStore, queue: QueueRef) -> None:
    """The pool is bounded; no call fails for that."""
    await enqueue(store, queue, [new_job(f"job-{number}") for number in range(100)])

    claims = await asyncio.gather(*(claim(store, queue, limit=1) for _ in range(100)))

    assert sorted(job.id for jobs in claims for job in jobs) == sorted(f"job-{n}" for n in range(100))


async def test_a_store_that_is_not_open_says_so(url: str, queue: QueueRef) -> None:
    """Before open and after close."""
    store = RedisStore(url)
    with pytest.raises(StoreError, match="not open"):
        await store.reads.counts(queue)
    await store.open()
    await store.close()

    with pytest.raises(StoreError, match="not open"):
        await store.reads.counts(queue)


async def _settled() -> None:
    """Let the loop hear of what the server closed."""
    await asyncio.sleep(0.05)  # real time: the ends of connections come from the kernel
