"""A server that comes back empty under processes that go on: what they know of its queues is put back."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta

import pytest
from redis.asyncio import Redis

from penstock import Penstock
from penstock.app.restoring import Restorer
from penstock.core.errors import DeclarationError, QueueFullError
from penstock.core.job import QueueRef
from penstock.core.limits import Declaration, Mode
from penstock.stores.memory import MemoryStore
from penstock.stores.redis import RedisStore
from penstock.testing.conformance.arrange import claim, enqueue, new_job
from tests.conformance.stores import opened
from tests.kit.waiting import PATIENCE, eventually

KEYED = Declaration(mode=Mode.KEYED)


async def test_whoever_uses_a_lost_queue_first_declares_it_as_it_was(
    url: str, store: RedisStore, operator: Redis, queue: QueueRef
) -> None:
    """Also when it only read the declaration, as workers and producers without one do."""
    await store.queues.declare(queue, KEYED)
    async with opened(RedisStore(url)) as other:
        await other.queues.open_queue(queue)
        await operator.flushall()
        await enqueue(other, queue, [new_job(f"job-{number}", key="a") for number in range(20)])

        claimed = await claim(store, queue, limit=20)
        info = await store.queues.declare(queue, KEYED)

    assert len(claimed) == 1
    assert info.declaration == KEYED


async def test_a_lost_queue_that_was_declared_anew_since_comes_back_by_the_newest_version_known(
    url: str, store: RedisStore, operator: Redis, queue: QueueRef
) -> None:
    """An older one that another process put back is not taken for newer knowledge."""
    newer = Declaration(version=2, max_active=7)
    async with opened(RedisStore(url)) as older:
        await older.queues.declare(queue, Declaration(max_active=3))
        await store.queues.declare(queue, newer)
        await operator.flushall()
        await enqueue(older, queue, [new_job("a")])
        there = await store.queues.open_queue(queue)
        await operator.flushall()
        await enqueue(store, queue, [new_job("a")])
        back = await store.queues.find_queue(queue)

    assert there.declaration == Declaration(max_active=3)
    assert back is not None
    assert back.declaration == newer


async def test_lost_queues_keep_their_numbers(store: RedisStore, operator: Redis) -> None:
    """The ids of their jobs carry them; in which order they come back is chance."""
    first, second, third = (QueueRef("default", name) for name in ("first", "second", "third"))
    numbers = {queue: (await store.queues.open_queue(queue)).number for queue in (first, second)}
    await operator.flushall()
    await enqueue(store, second, [new_job("a")])
    third_number = (await store.queues.open_queue(third)).number
    await enqueue(store, first, [new_job("a")])

    after = {info.queue: info.number for info in await store.queues.list_queues("default")}
    assert after == {**numbers, third: third_number}
    assert len(set(after.values())) == 3


async def test_a_producer_meets_the_old_limits_on_a_server_that_came_back_empty(
    url: str, operator: Redis
) -> None:
    """Its queue's length, for one."""
    app = Penstock(url)
    mail = app.queue("mail", max_length=1)

    @mail.task
    async def send() -> None: ...

    async with app:
        await send.enqueue()
        await operator.flushall()
        await send.enqueue()
        with pytest.raises(QueueFullError):
            await send.enqueue()


async def test_running_workers_put_lost_schedules_and_declarations_back(
    url: str, operator: Redis, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Without a restart, and counted from now: what was fired before is not fired again."""
    monkeypatch.setattr("penstock.app.restoring.EVERY", 0.05)
    app = Penstock(url)
    mail = app.queue("mail", mode="keyed")

    @app.every(hours=1, args=["ada"])
    @mail.task(key="{to}")
    async def send(to: str) -> None: ...

    async with asyncio.timeout(PATIENCE), app:
        worker = app.worker()
        working = asyncio.create_task(worker.run())
        await _until_scheduled(app)
        await operator.flushall()
        await _until_scheduled(app)
        info = await app.store.queues.find_queue(QueueRef("default", "mail"))
        [schedule] = await app.schedules.list()
        now = await app.store.clock.now()
        worker.stop()
        await working

    assert info is not None
    assert info.mode is Mode.KEYED
    assert schedule.next_at is not None
    assert now < schedule.next_at.timestamp() * 1000 <= now + timedelta(hours=1) / timedelta(milliseconds=1)
    assert caplog.text.count("the store lost queues") == 1


async def test_what_cannot_be_declared_again_is_told_once_and_ends_no_worker(
    store: RedisStore, operator: Redis, queue: QueueRef, caplog: pytest.LogCaptureFixture
) -> None:
    """It is tried again, and may succeed once jobs of the wrong mode have ended."""
    refusals = [DeclarationError("the queue is global"), DeclarationError("the queue is global"), None]

    async def restore(_: object) -> None:
        if refusal := refusals.pop(0):
            raise refusal

    restorer = Restorer(store, lambda: [queue], restore)
    looks = [await restorer.look()]
    await operator.flushall()
    looks += [await restorer.look() for _ in range(4)]

    assert all(looks)
    assert not refusals
    assert caplog.text.count("the queue is global") == 1


async def test_a_queue_that_was_deleted_is_declared_again_also_where_a_store_loses_nothing(
    queue: QueueRef,
) -> None:
    """A worker that serves it looks, and finds another queue of its name."""
    restored: list[QueueRef] = []

    async def restore(lost: Sequence[QueueRef]) -> None:
        restored.extend(lost)

    async with opened(MemoryStore()) as store:
        restorer = Restorer(store, lambda: [queue], restore)
        looks = [await restorer.look(), await restorer.look()]
        before = list(restored)
        await store.queues.delete_queue(queue)

        assert (looks, before, await restorer.look()) == ([True, True], [], True)
        assert restored == [queue]


async def _until_scheduled(app: Penstock) -> None:
    await eventually(app.schedules.list)
