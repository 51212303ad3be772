"""Workers live through the loss of their server, and through a server that is full."""

import asyncio
from functools import partial
from pathlib import Path

from redis.asyncio import Redis

from penstock import Penstock, StoreFullError
from penstock.core.job import QueueRef
from penstock.core.moves import Beat, Complete
from penstock.core.outcomes import Applied
from penstock.core.states import State
from penstock.stores.redis import RedisStore
from penstock.stores.values import Topic
from penstock.testing.conformance.arrange import LEASE_MS, claim, enqueue, new_job
from tests.conformance.stores import opened
from tests.kit import valkey
from tests.kit.subscriptions import drain_notifications
from tests.kit.waiting import PATIENCE, eventually
from tests.stores.redis.operating import tell


async def test_a_worker_goes_on_after_its_server_was_killed_and_came_back(
    binary: Path, tmp_path: Path
) -> None:
    """Nothing is started anew: not the worker, not the producer, not whoever waits for a result."""
    process, port = valkey.start(binary, tmp_path, appendonly=True)
    app = Penstock(f"redis://127.0.0.1:{port}/0")
    mail = app.queue("mail")
    gate = asyncio.Event()
    begun = asyncio.Event()

    @mail.task
    async def send(number: int) -> int:
        if number == 1:
            begun.set()
            await gate.wait()
        return number

    try:
        async with asyncio.timeout(PATIENCE), app:
            worker = app.worker(poll=3_600)
            working = asyncio.create_task(worker.run())
            before = await send.enqueue(1)
            await begun.wait()
            waiting = asyncio.create_task(before.result(timeout=PATIENCE))
            process.kill()
            process.wait(PATIENCE)
            gate.set()
            meanwhile = asyncio.create_task(send.enqueue(2))
            process, _ = valkey.start(binary, tmp_path, port=port, appendonly=True)
            # Enqueued while the server was away; settled and claimed by scripts that it has to get again.
            results = [await waiting, await (await meanwhile).result(timeout=PATIENCE)]
            # The fallback poll is a minute away: what is heard now is heard over a new subscription.
            results.append(await (await send.enqueue(3)).result(timeout=PATIENCE))
            worker.stop()
            await working
            queue = QueueRef("default", "mail")
            assert await app.store.health.check(queue) == []
    finally:
        valkey.stop(process)

    assert results == [1, 2, 3]


async def test_subscriptions_are_made_again_on_a_server_that_came_back(
    binary: Path, tmp_path: Path, queue: QueueRef
) -> None:
    """They are notified once for what was missed, and then for what comes."""
    process, port = valkey.start(binary, tmp_path, appendonly=True)
    url = f"redis://127.0.0.1:{port}/0"
    try:
        async with (
            opened(RedisStore(url)) as store,
            store.notifier.subscribe(queue, Topic.READY) as subscription,
        ):
            process.kill()
            process.wait(PATIENCE)
            assert await subscription.wait(PATIENCE)
            process, _ = valkey.start(binary, tmp_path, port=port, appendonly=True)
            operator = Redis.from_url(url)
            await eventually(partial(operator.pubsub_channels, "*bell*"))
            await operator.aclose()
            await drain_notifications(subscription)
            await enqueue(store, queue, [new_job()])

            assert await subscription.wait(PATIENCE)
    finally:
        valkey.stop(process)


async def test_at_maxmemory_jobs_that_run_are_renewed_and_settled_and_the_next_is_claimed(
    store: RedisStore, operator: Redis, queue: QueueRef
) -> None:
    """Only what would make it fuller is refused."""
    await enqueue(store, queue, [new_job(f"job-{number}") for number in range(3)])
    held = await claim(store, queue, limit=1)
    await tell(operator, "CONFIG", "SET", "maxmemory", "1mb")
    try:
        await store.moves.enqueue(queue, [new_job("more")])
    except StoreFullError:
        is_refused = True
    else:
        is_refused = False
    [renewed] = await store.moves.heartbeat(queue, [Beat(held[0].id, held[0].token)], LEASE_MS)
    [settled] = await store.moves.settle(queue, [Complete(held[0].id, held[0].token)])
    other = await claim(store, queue, limit=1)
    counts, events = await store.reads.counts(queue), await store.events.read_events(queue)
    await tell(operator, "CONFIG", "SET", "maxmemory", "0")

    assert is_refused
    assert renewed == Applied(State.ACTIVE)
    assert settled == Applied(State.COMPLETED)
    assert len(other) == 1
    assert (counts[State.COMPLETED], counts[State.ACTIVE], counts[State.PENDING]) == (1, 1, 1)
    assert len(events) == 6
    assert await store.health.check(queue) == []
