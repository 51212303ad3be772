"""Workers of an app on a store that does not reach some queues, as when a node of a cluster is away."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from penstock import Penstock, QueueHandle
from penstock.core.errors import DamagedQueueError, DeclarationError, StoreUnavailableError
from penstock.core.job import QueueRef
from penstock.core.limits import Declaration, Mode
from penstock.stores.values import QueueInfo, StoredSchedule
from tests.kit.intercepted import InterceptedStore
from tests.kit.waiting import PATIENCE, eventually, until

HERE, AWAY = QueueRef("default", "here"), QueueRef("default", "away")


class PartlyAway(InterceptedStore):
    """A store that does not reach one queue, nor lists of all, until it `is_back`."""

    is_back = False
    refusals = 0

    def _reach(self, queue: QueueRef | None) -> None:
        if not self.is_back and queue in (None, AWAY):
            self.refusals += 1
            raise StoreUnavailableError("a node of the cluster is away")

    async def open_queue(self, queue: QueueRef) -> QueueInfo:
        self._reach(queue)
        return await self.real.queues.open_queue(queue)

    async def declare(self, queue: QueueRef, declaration: Declaration) -> QueueInfo:
        self._reach(queue)
        return await self.real.queues.declare(queue, declaration)

    async def claim(self, queue: QueueRef, *given: Any, **options: Any) -> Any:
        self._reach(queue)
        return await self.real.moves.claim(queue, *given, **options)

    async def list_schedules(self, tenant: str, names: Sequence[str] | None = None) -> list[StoredSchedule]:
        self._reach(None)
        return await self.real.schedules.list_schedules(tenant, names)


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.app.preparing.GRACE", 0.05)
    monkeypatch.setattr("penstock.app.pool.PAUSE", 0.05)
    monkeypatch.setattr("penstock.app.restoring.EVERY", 0.05)


async def test_workers_of_queues_that_can_be_reached_start_and_the_others_follow() -> None:
    store = PartlyAway()
    app, done = _app(store), list[str]()

    @app.queue("here", mode="keyed").task(key="{word}")
    async def say(word: str) -> None:
        done.append(word)

    @app.every(hours=1, args=["tick"])
    @app.queue("away", mode="keyed").task(key="{word}")
    async def repeat(word: str) -> None:
        done.append(word)

    async with asyncio.timeout(PATIENCE), app:
        workers = app.worker()
        working = asyncio.create_task(workers.run())
        await say.enqueue("one")
        await until(lambda: done == ["one"])
        store.is_back = True
        await repeat.enqueue("two")
        await until(lambda: done == ["one", "two"])
        await eventually(app.schedules.list)
        workers.stop()
        await working

    assert (await store.real.queues.find_queue(AWAY)) is not None


async def test_a_queue_that_is_declared_otherwise_ends_the_workers_when_it_is_back() -> None:
    store = PartlyAway()
    await store.real.queues.declare(AWAY, Declaration(mode=Mode.KEYED))
    app = _app(store)
    app.queue("here", max_length=9)
    app.queue("away", max_length=5)
    async with asyncio.timeout(PATIENCE), app:
        working = asyncio.create_task(app.worker().run())
        await until(lambda: store.refusals >= 3)
        was_running = not working.done()
        store.is_back = True
        with pytest.raises(DeclarationError, match="queue 'away'"):
            await working

    assert was_running


async def test_workers_that_wait_for_their_queue_can_be_stopped() -> None:
    store = PartlyAway()
    app = _app(store)
    app.queue("here", max_length=9)
    app.queue("away", max_length=5)
    async with asyncio.timeout(PATIENCE), app:
        workers = app.worker()
        working = asyncio.create_task(workers.run())
        await until(lambda: store.refusals >= 3)
        workers.stop()
        await working


async def test_workers_do_not_start_where_no_queue_can_be_reached() -> None:
    app = _app(PartlyAway())
    app.queue("away", max_length=5)
    async with asyncio.timeout(PATIENCE), app:
        with pytest.raises(StoreUnavailableError):
            await app.worker().run()


class PartlyDamaged(PartlyAway):
    """A store in which one queue cannot be read, until it `is_back`."""

    def _reach(self, queue: QueueRef | None) -> None:
        if not self.is_back and queue == AWAY:
            self.refusals += 1
            raise DamagedQueueError("queue away cannot be read")


@pytest.mark.parametrize("declared", ["here away", "away", ""])
async def test_a_damaged_queue_stops_no_other_and_goes_on_once_it_is_mended(
    declared: str, caplog: pytest.LogCaptureFixture
) -> None:
    store = PartlyDamaged()
    app, done = _app(store), list[str]()

    @_queue(app, "here", "here" in declared).task
    async def say(word: str) -> None:
        done.append(word)

    @app.every(hours=1, args=["tick"])
    @_queue(app, "away", "away" in declared).task
    async def repeat(word: str) -> None:
        done.append(word)

    async with asyncio.timeout(PATIENCE), app:
        workers = app.worker()
        working = asyncio.create_task(workers.run())
        await say.enqueue("one")
        await until(lambda: done == ["one"] and "queue away cannot be read" in caplog.text)
        store.is_back = True
        await repeat.enqueue("two")
        await until(lambda: done == ["one", "two"])
        workers.stop()
        await working


@pytest.mark.parametrize("is_declared", [True, False])
async def test_a_burst_does_not_wait_until_a_damaged_queue_is_mended(is_declared: bool) -> None:
    app = _app(PartlyDamaged())
    app.queue("here", max_length=9)
    _queue(app, "away", is_declared)
    async with asyncio.timeout(PATIENCE), app:
        with pytest.raises(DamagedQueueError):
            await app.worker(burst=True).run()


def _queue(app: Penstock, name: str, is_declared: bool) -> QueueHandle:
    """A queue of which the app declares something, or nothing."""
    return app.queue(name, max_length=9) if is_declared else app.queue(name)


def _app(store: PartlyAway) -> Penstock:
    return Penstock(store=store, retry_timeout=0.05)
