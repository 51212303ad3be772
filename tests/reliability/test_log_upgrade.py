"""A store with a long log of the form before is upgraded while workers of both versions work on it."""

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import pytest
from redis.asyncio import Redis

from penstock.core.history import Checker
from penstock.core.job import QueueRef
from penstock.core.moves import Complete
from penstock.core.states import State
from penstock.stores.protocol import Store
from penstock.stores.redis import RedisStore
from penstock.testing.conformance.arrange import claim, enqueue, new_job
from tests.conformance.stores import opened
from tests.kit import valkey
from tests.stores.redis.earlier import before_runs

pytestmark = pytest.mark.torture

QUEUE: Final = QueueRef("default", "torture")
EVENTS: Final = 1_000_000
CALL: Final = 1_000
PAGE: Final = 10_000


@pytest.fixture(params=valkey.binaries(), ids=lambda path: path.name)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Each server that can be had here."""
    with valkey.running(request.param, tmp_path) as running:
        yield running.url


async def _work(store: Store, jobs: Sequence[str]) -> None:
    """Enqueue jobs, and complete as many as there are, by whoever enqueued them."""
    for first in range(0, len(jobs), CALL):
        await enqueue(store, QUEUE, [new_job(job) for job in jobs[first : first + CALL]])
        held = await claim(store, QUEUE, limit=CALL)
        await store.moves.settle(QUEUE, [Complete(job.id, job.token) for job in held])


async def _drain(store: Store) -> None:
    while held := await claim(store, QUEUE, limit=CALL):
        await store.moves.settle(QUEUE, [Complete(job.id, job.token) for job in held])


async def _follow(store: Store, done: asyncio.Event) -> tuple[int, str]:
    """Read columns while others write; every number comes once, and in its order."""
    here, count = "0", 0
    while True:
        was_done = done.is_set()
        end = await store.events.cursor_after(QUEUE)
        while (found := await store.events.event_columns(QUEUE, here, end, PAGE)).count:
            numbers = found.fields["seq"]
            assert (numbers[0], numbers[-1]) == (count + 1, count + found.count)
            assert not found.broken
            count += found.count
            here = found.cursors(QUEUE)[-1]
        if was_done:
            return count, here
        await asyncio.sleep(0)


async def test_a_long_log_is_carried_on_while_old_and_new_workers_work(url: str, scale: float) -> None:
    """The reader of this version begins in the old part; the checker finds every transition once."""
    jobs = int(EVENTS * scale) // 3 // CALL * CALL
    names = [f"job-{number}" for number in range(jobs)]
    old, late, new = names[: jobs * 8 // 10], names[jobs * 8 // 10 : jobs * 9 // 10], names[jobs * 9 // 10 :]
    async with opened(RedisStore(url, sources=before_runs())) as before:
        await _work(before, old)
        async with Redis.from_url(url) as operator:
            await operator.hset("penstock:store", "schema", "1")
        async with opened(RedisStore(url)) as store:
            done = asyncio.Event()
            following = asyncio.create_task(_follow(store, done))
            await asyncio.gather(_work(before, late), _work(store, new))
            await asyncio.gather(_drain(before), _drain(store))
            done.set()
            count, last = await following
            counts = await store.reads.counts(QUEUE)
            checker, cursor = Checker(starts={QUEUE: 1}), "0"
            while page := await store.events.read_events(QUEUE, cursor, PAGE):
                for event in page:
                    checker.feed(event)
                cursor = page[-1].cursor

            assert counts[State.COMPLETED] == jobs
            assert count == 3 * jobs
            assert cursor == last
            assert checker.finish(None).breaches == ()
            half = count // 2
            assert await store.events.trim(QUEUE, through=half) > half - CALL
            first, newest = await store.events.event_range(QUEUE)
            assert first <= half + 1 < newest == count
            [event] = await store.events.read_events(QUEUE, first - 1, 1)
            assert event.seq == first
            assert await store.health.check(QUEUE) == []
