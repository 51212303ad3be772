"""What jobs and declarations leave behind on the server, and what that does to those after them."""

from redis.asyncio import Redis

from penstock import Penstock
from penstock.core.job import QueueRef
from penstock.core.limits import Declaration, Mode, Rate
from penstock.core.states import State
from penstock.core.unique import Unique, UniqueRule
from penstock.stores.bounds import CLAIM_SCAN
from penstock.stores.redis import RedisStore
from penstock.stores.redis.keys import keys_of
from penstock.testing.conformance.arrange import claim, enqueue, new_job

GONE = 2 * CLAIM_SCAN + 1


async def test_a_burst_runs_what_stands_behind_many_that_were_cancelled(
    store: RedisStore, queue: QueueRef
) -> None:
    app = Penstock(store._url, tenant=queue.tenant)

    @app.queue(queue.name).task(name="task")
    async def task() -> None: ...

    async with app:
        handles = await task.enqueue_many([()] * GONE)
        await store.moves.cancel(queue, [handle.id for handle in handles])
        await task.enqueue()
        await app.worker(burst=True).run()

    assert (await store.reads.counts(queue))[State.COMPLETED] == 1


async def test_a_server_clock_that_was_set_back_is_followed(
    store: RedisStore, operator: Redis, queue: QueueRef
) -> None:
    """By some seconds it is waited for; what it did while it was hours ahead is no reason to stand still."""
    await enqueue(store, queue, [new_job("a", delay_ms=1_000)])
    ahead_us = (await store.clock.now() + 3_600_000) * 1_000
    await operator.hset(keys_of(queue).meta, "last_us", str(ahead_us))
    await store.clock.advance_clock(1_000)

    assert [job.id for job in await claim(store, queue)] == ["a"]


async def test_lists_of_keys_without_jobs_are_gone(
    store: RedisStore, operator: Redis, queue: QueueRef
) -> None:
    """Also where a job left its list in the call that brought it."""
    await store.queues.declare(queue, Declaration(mode=Mode.KEYED))
    wait, last = Unique("u", UniqueRule.WAITING), Unique("u", UniqueRule.DEBOUNCE)
    await store.moves.enqueue(
        queue, [new_job("a", key="k", unique=wait), new_job("b", key="k", unique=last, delay_ms=1_000)]
    )
    await store.moves.delete(queue, ["a"])

    start = keys_of(queue).meta.removesuffix("meta")
    assert [key async for key in operator.scan_iter(f"{start}pending:*")] == []
    assert [key async for key in operator.scan_iter(f"{start}gone:*")] == []


async def test_another_mode_begins_with_empty_lists(
    store: RedisStore, operator: Redis, queue: QueueRef
) -> None:
    gone = await enqueue(store, queue, [new_job(str(n)) for n in range(3)])
    await store.moves.cancel(queue, gone)
    await store.queues.declare(queue, Declaration(mode=Mode.KEYED))

    assert await operator.exists(keys_of(queue).pending(5), keys_of(queue).gone(5)) == 0


async def test_all_keys_of_a_queue_hear_of_another_declaration_at_once(
    store: RedisStore, queue: QueueRef
) -> None:
    """A claim looks at some of them, and says that there are more."""
    slow = Rate(1, 3_600_000)
    await store.queues.declare(queue, Declaration(mode=Mode.KEYED, key_limit=9, key_rate=slow))
    jobs = [new_job(f"{n}-{again}", key=f"k{n}") for n in range(1_000) for again in (1, 2)]
    await enqueue(store, queue, jobs)
    assert len(await claim(store, queue, 2_000)) == 1_000
    await store.queues.declare(queue, Declaration(version=2, mode=Mode.KEYED, key_limit=9))

    claims = await store.moves.claim(queue, worker="w", limit=0, lease_ms=1_000)
    calls = 1
    while claims.is_more:
        claims = await store.moves.claim(queue, worker="w", limit=0, lease_ms=1_000)
        calls += 1
    assert calls <= 20
    assert len(await claim(store, queue, 2_000)) == 1_000
