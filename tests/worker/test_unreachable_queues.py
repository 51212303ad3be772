"""Workers of an app on a store that does not reach some queues, as when a node of a cluster is away."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from penstock import Penstock
from penstock.core.errors import DeclarationError, StoreUnavailableError
from penstock.core.job import QueueRef
from penstock.core.limits import Declaration, Mode
from penstock.stores.memory import MemoryStore
from penstock.stores.values import QueueInfo, StoredSchedule

SECONDS = 30.0
HERE, AWAY = QueueRef("default", "here"), QueueRef("default", "away")


class PartlyAway(MemoryStore):
    """A store that does not reach one queue, nor lists of all, until it `is_back`."""

    is_back = False

    def _reach(self, queue: QueueRef | None) -> None:
        if not self.is_back and queue in (None, AWAY):
            raise StoreUnavailableError("a node of the cluster is away")

    async def open_queue(self, queue: QueueRef) -> QueueInfo:
        self._reach(queue)
        return await super().open_queue(queue)

    async def declare(self, queue: QueueRef, declaration: Declaration) -> QueueInfo:
        self._reach(queue)
        return await super().declare(queue, declaration)

    async def claim(self, queue: QueueRef, *given: Any, **options: Any) -> Any:
        self._reach(queue)
        return await super().claim(queue, *given, **options)

    async def schedules(self, tenant: str, names: Sequence[str] | None = None) -> list[StoredSchedule]:
        self._reach(None)
        return await super().schedules(tenant, names)


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

    async with asyncio.timeout(SECONDS), app:
        workers = app.worker()
        working = asyncio.create_task(workers.run())
        await say.enqueue("one")
        await _until(lambda: done == ["one"])
        store.is_back = True
        await repeat.enqueue("two")
        await _until(lambda: done == ["one", "two"])
        while not await app.schedules.list():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        workers.stop()
        await working

    assert (await MemoryStore.queue(store, AWAY)) is not None


async def test_a_queue_that_is_declared_otherwise_ends_the_workers_when_it_is_back() -> None:
    store = PartlyAway()
    await MemoryStore.declare(store, AWAY, Declaration(mode=Mode.KEYED))
    app = _app(store)
    app.queue("here", max_length=9)
    app.queue("away", max_length=5)
    async with asyncio.timeout(SECONDS), app:
        working = asyncio.create_task(app.worker().run())
        await asyncio.wait([working], timeout=0.2)
        was_running = not working.done()
        store.is_back = True
        with pytest.raises(DeclarationError, match="queue 'away'"):
            await working

    assert was_running


async def test_workers_that_wait_for_their_queue_can_be_stopped() -> None:
    app = _app(PartlyAway())
    app.queue("here", max_length=9)
    app.queue("away", max_length=5)
    async with asyncio.timeout(SECONDS), app:
        workers = app.worker()
        working = asyncio.create_task(workers.run())
        await asyncio.wait([working], timeout=0.2)
        workers.stop()
        await working


async def test_workers_do_not_start_where_no_queue_can_be_reached() -> None:
    app = _app(PartlyAway())
    app.queue("away", max_length=5)
    async with asyncio.timeout(SECONDS), app:
        with pytest.raises(StoreUnavailableError):
            await app.worker().run()


def _app(store: PartlyAway) -> Penstock:
    return Penstock(store=store, patience=0.05)


async def _until(is_so: Callable[[], bool]) -> None:
    while not is_so():  # noqa: ASYNC110
        await asyncio.sleep(0.01)
