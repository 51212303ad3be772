"""Calls, subscriptions and stores that are cancelled or closed at every step of what they do."""

import asyncio

import pytest
from redis.asyncio import Redis

from penstock.core.job import QueueRef
from penstock.stores.redis import RedisStore
from penstock.stores.redis.scripts import Scripts
from penstock.stores.redis.server import Server
from penstock.stores.values import Topic
from penstock.testing.conformance.arrange import enqueue, new_job
from tests.kit.waiting import PATIENCE
from tests.stores.redis.operating import tell

TURNS = 60


async def test_a_call_can_be_cancelled_at_every_turn_of_the_loop(store: RedisStore, queue: QueueRef) -> None:
    """The reply that nobody waits for is not taken for the next one's."""
    await enqueue(store, queue, [new_job(f"job-{turns}") for turns in range(TURNS)])
    for turns in range(TURNS):
        call = asyncio.create_task(_get(store, queue, "job-0"))
        assert await _cut_off(call, turns), f"turn {turns}"

        [found] = await store.reads.get(queue, [f"job-{turns}"])

        assert found is not None
        assert found.id == f"job-{turns}"


async def test_a_time_limit_of_the_caller_is_a_timeout(
    store: RedisStore, operator: Redis, queue: QueueRef
) -> None:
    """And not a cancel, and the store stays usable."""
    await tell(operator, "CLIENT", "PAUSE", 200, "ALL")

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):  # real time: the limit is to be over before the server answers
            await store.reads.get(queue, ["a"])

    assert await store.reads.get(queue, ["a"]) == [None]


async def test_of_many_who_wait_for_the_first_connection_one_can_give_up(url: str) -> None:
    """The others get it."""
    server = Server(url, Scripts())
    server.open()
    calls = [asyncio.create_task(server.command("PING")) for _ in range(5)]
    await asyncio.sleep(0)
    calls[0].cancel()
    ends = await asyncio.gather(*calls, return_exceptions=True)
    await server.close()

    assert isinstance(ends[0], asyncio.CancelledError)
    assert ends[1:] == [b"PONG"] * 4


async def test_opening_and_hanging_can_be_cancelled_at_every_turn_of_the_loop(
    url: str, queue: QueueRef
) -> None:
    """Nothing is swallowed, and nothing keeps listening."""
    for turns in range(TURNS):
        store = RedisStore(url)
        cut = await _cut_off(asyncio.create_task(store.open()), turns)
        await store.close()
        assert cut, f"opening, turn {turns}"
        await store.open()
        try:
            cut = await _cut_off(asyncio.create_task(_hang(store, queue)), turns)
            assert cut, f"hanging, turn {turns}"
        finally:
            async with asyncio.timeout(PATIENCE):
                await store.close()
        assert not _listeners()


async def _cut_off(task: asyncio.Task[None], turns: int) -> bool:
    """Whether the task ended by its cancel, or before."""
    for _ in range(turns):
        await asyncio.sleep(0)
    is_cancelled = task.cancel()
    await asyncio.wait([task], timeout=PATIENCE)
    return task.done() and task.cancelled() == is_cancelled


async def _get(store: RedisStore, queue: QueueRef, job: str) -> None:
    await store.reads.get(queue, [job])


async def _hang(store: RedisStore, queue: QueueRef, seconds: float = 60.0) -> None:
    async with store.notifier.subscribe(queue, Topic.ENDED) as subscription:
        await subscription.wait(seconds)


def _listeners() -> list[asyncio.Task[object]]:
    return [task for task in asyncio.all_tasks() if "_listen" in repr(task.get_coro())]
