"""Calls, bells and stores that are cancelled or closed at every step of what they do."""

import asyncio

import pytest

from penstock.core.job import QueueRef
from penstock.stores.protocol import Topic
from penstock.stores.redis import RedisStore
from tests.stores.redis.losing import LostCancel

SECONDS = 1.5
TURNS = 60


@pytest.mark.parametrize("nth", range(1, 10))
async def test_opening_ends_by_a_cancel_that_the_client_lost(
    url: str, monkeypatch: pytest.MonkeyPatch, nth: int
) -> None:
    """At whichever command it came."""
    lost = LostCancel(monkeypatch, nth)
    opening = asyncio.create_task(RedisStore(url).open())
    await asyncio.wait_for(lost.reached.wait(), SECONDS)

    opening.cancel()
    await asyncio.wait([opening], timeout=SECONDS)

    assert opening.cancelled()


async def test_a_lost_cancel_of_a_time_limit_is_a_timeout(
    store: RedisStore, queue: QueueRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not a cancel of the caller."""
    LostCancel(monkeypatch, 1)

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await store.get(queue, ["a"])


@pytest.mark.parametrize("nth", range(1, 5))
async def test_a_store_closes_although_the_client_lost_the_cancel_of_its_listener(
    store: RedisStore, queue: QueueRef, monkeypatch: pytest.MonkeyPatch, nth: int
) -> None:
    """While it connects, greets and subscribes."""
    lost = LostCancel(monkeypatch, nth)
    hanging = asyncio.create_task(_hang(store, queue))
    await asyncio.wait_for(lost.reached.wait(), SECONDS)
    [listener] = _listeners()

    async with asyncio.timeout(SECONDS):
        await store.close()

    assert listener.done()
    hanging.cancel()
    await asyncio.wait([hanging])


@pytest.mark.parametrize("nth", [1, 2])
async def test_whoever_hangs_a_bell_is_cancelled_although_the_client_lost_it(
    store: RedisStore, queue: QueueRef, monkeypatch: pytest.MonkeyPatch, nth: int
) -> None:
    """While it subscribes and while it unsubscribes."""
    async with store.bell(queue, Topic.READY):
        lost = LostCancel(monkeypatch, nth)
        hanging = asyncio.create_task(_hang(store, queue, seconds=0))
        await asyncio.wait_for(lost.reached.wait(), SECONDS)

        hanging.cancel()
        await asyncio.wait([hanging], timeout=SECONDS)

        assert hanging.cancelled()


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
            async with asyncio.timeout(SECONDS):
                await store.close()
        assert not _listeners()


async def _cut_off(task: asyncio.Task[None], turns: int) -> bool:
    """Whether the task ended by its cancel, or before."""
    for _ in range(turns):
        await asyncio.sleep(0)
    is_cancelled = task.cancel()
    await asyncio.wait([task], timeout=SECONDS)
    return task.done() and task.cancelled() == is_cancelled


async def _hang(store: RedisStore, queue: QueueRef, seconds: float = 60.0) -> None:
    async with store.bell(queue, Topic.ENDED) as bell:
        await bell.wait(seconds)


def _listeners() -> list[asyncio.Task[object]]:
    return [task for task in asyncio.all_tasks() if "_listen" in repr(task.get_coro())]
