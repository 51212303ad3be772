"""Redis behind a bad line: replies cut and held back at random while workers work."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest

from penstock import Penstock, Task
from penstock.core.errors import StoreUnavailableError
from penstock.core.history import Checker, Produced
from penstock.core.job import QueueRef
from penstock.core.moves import Complete, Release
from penstock.core.outcomes import Applied
from penstock.core.states import State
from penstock.stores.redis import RedisStore
from penstock.testing.conformance.arrange import LEASE_MS, claim, enqueue, new_job
from tests.conformance.stores import opened
from tests.kit import valkey
from tests.kit.proxy import proxied

pytestmark = pytest.mark.torture

OPTIONS = "?connections=2&idle_connections=1&answer_timeout=250ms&connect_timeout=1s"
QUEUE = QueueRef("default", "torture")
MANY = 8
T = TypeVar("T")


@pytest.fixture(params=valkey.binaries(), ids=lambda path: path.name)
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[valkey.Server]:
    """Each server that can be had here."""
    with valkey.running(request.param, tmp_path) as running:
        yield running


@pytest.mark.parametrize("silent", [False, True], ids=["cut", "silent"])
async def test_a_claim_and_a_settle_of_many_are_cut_at_every_byte(
    server: valkey.Server, silent: bool
) -> None:
    """While other calls share the connection: nobody gets what was meant for another, nothing is lost."""
    async with proxied(server.port) as proxy, opened(RedisStore(proxy.url + OPTIONS)) as store:
        names = [f"job-{number}" for number in range(MANY)]
        await enqueue(store, QUEUE, [new_job(name) for name in names])
        await store.moves.settle(
            QUEUE, [Release(job.id, job.token) for job in await claim(store, QUEUE, limit=MANY)]
        )
        before = proxy.heard
        held = await claim(store, QUEUE, limit=MANY)
        length = proxy.heard - before
        await store.moves.settle(QUEUE, [Release(job.id, job.token) for job in held])
        for after in range(0, length, 29 if silent else 1):
            proxy.cut(after, silent=silent)
            claiming = asyncio.create_task(
                store.moves.claim(QUEUE, worker="w", limit=MANY, lease_ms=LEASE_MS)
            )
            reads = [store.reads.get(QUEUE, [name]) for name in names[:5]]
            ends = await asyncio.gather(*reads, return_exceptions=True)
            await asyncio.wait([claiming])
            proxy.heal()

            for name, end in zip(names, ends, strict=False):
                if isinstance(end, BaseException):
                    assert isinstance(end, StoreUnavailableError)
                else:
                    assert [job and job.id for job in end] == [name]
            assert isinstance(claiming.exception(), StoreUnavailableError | None)
            leases = await answered(lambda: store.reads.leases(QUEUE, "w"))
            assert len(leases) == MANY
            proxy.cut(after % 40, silent=silent)
            releases = [Release(lease.id, lease.token) for lease in leases]
            # A connection that is made in the background may be the one that is cut.
            with suppress(StoreUnavailableError):
                await store.moves.settle(QUEUE, releases)
            proxy.heal()
            settled = await answered(partial(store.moves.settle, QUEUE, releases))
            assert settled == [Applied(State.PENDING)] * MANY

        left = await claim(store, QUEUE, limit=2 * MANY)
        assert sorted(job.id for job in left) == sorted(names)
        await store.moves.settle(QUEUE, [Complete(job.id, job.token) for job in left])
        assert (await store.reads.counts(QUEUE))[State.COMPLETED] == MANY
        assert await store.health.check(QUEUE) == []


async def answered(call: Callable[[], Awaitable[T]]) -> T:
    """The answer of a line that is whole: on a busy machine one may come too late."""
    while True:
        with suppress(StoreUnavailableError):
            return await call()


async def send(step: Task[..., Any, Any], jobs: int) -> list[Produced]:
    """Enqueue in batches, each answered in less than is let through between two cuts."""
    produced = []
    for start in range(0, jobs, 20):
        handles = await step.enqueue_many([(number,) for number in range(start, min(start + 20, jobs))])
        produced += [Produced(QUEUE, handle.id) for handle in handles]
    return produced


async def test_workers_behind_a_bad_line_lose_nothing(
    server: valkey.Server, chance: random.Random, scale: float
) -> None:
    """Hundreds of cuts at random bytes, 1,000 jobs: the checker and the fsck find nothing."""
    logging.getLogger("penstock").setLevel(logging.CRITICAL)
    jobs = int(1_000 * scale)
    cuts = 0
    async with proxied(server.port) as proxy:
        app = Penstock(proxy.url + OPTIONS)
        queue = app.queue(QUEUE.name)

        @queue.task
        async def step(number: int) -> int:
            await asyncio.sleep(chance.uniform(0, 0.02))
            return number

        async with app:
            worker = app.worker(lease=2.0, poll=0.2)
            working = asyncio.create_task(worker.run())
            sending = asyncio.create_task(send(step, jobs))
            async with asyncio.timeout(300 * scale), opened(RedisStore(server.url)) as watch:
                while not sending.done() or (await watch.reads.counts(QUEUE))[State.COMPLETED] < jobs:
                    await asyncio.sleep(chance.uniform(0, 0.2))
                    proxy.cut(chance.randrange(5_000), silent=chance.random() < 0.2)
                    cuts += 1
            proxy.heal()
            produced = await sending
            worker.stop()
            await working
    print(f"{cuts} cuts, {jobs} jobs", flush=True)

    async with opened(RedisStore(server.url)) as store:
        checker = Checker(produced=produced)
        cursor = 0
        while events := await store.events.read_events(QUEUE, cursor, 5_000):
            for event in events:
                checker.feed(event)
            cursor = events[-1].seq
        verdict = checker.finish({})
        assert [str(breach) for breach in verdict.breaches[:10]] == []
        assert verdict.completed == jobs
        assert await store.health.check(QUEUE) == []
