"""What a running worker shows of itself in the registry."""

import asyncio
from typing import Any

import pytest

from penstock import Penstock
from penstock.core.errors import OptionError
from penstock.core.job import QueueRef
from penstock.core.states import State
from penstock.stores.memory import MemoryStore
from penstock.stores.protocol import Store
from penstock.stores.values import OrderKind, WorkerEntry, WorkerOrder, WorkerState
from penstock.worker import registration
from penstock.worker.registration import Registration
from penstock.worker.slots import Slots
from penstock.worker.status import BUSY_BYTES, LoopLag, QueueStatus, busy_slots, resident_memory
from tests.kit.intercepted import InterceptedStore
from tests.kit.waiting import eventually, until
from tests.worker.kit import Desk, StoppedClock


@pytest.fixture(autouse=True)
def _renewed_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registration, "LEASE", 0.03)


class Lasting(InterceptedStore):
    """A memory store whose worker entries hold however slow the machine is."""

    async def register_worker(self, tenant: str, worker: WorkerEntry, lease_ms: int) -> Any:
        return await self.real.workers.register_worker(tenant, worker, 600_000)


async def _entry(desk: Desk, state: WorkerState) -> WorkerEntry | None:
    found = await desk.store.workers.list_workers(desk.queue.tenant)
    return found[0] if found and found[0].state is state else None


async def test_an_idle_worker_says_so_and_a_busy_one_names_its_jobs() -> None:
    desk = Desk(QueueRef("default", "q"), Lasting())
    go = asyncio.Event()

    async def send() -> None:
        await go.wait()

    async with desk.working(send, name="ada", concurrency=3):
        idle = await eventually(lambda: _entry(desk, WorkerState.IDLE))
        job = await desk.enqueue("send")
        busy = await eventually(lambda: _entry(desk, WorkerState.BUSY))
        record = await desk.job(job)
        go.set()
        again = await eventually(lambda: _entry(desk, WorkerState.IDLE))

    assert (idle.slots, idle.taken, idle.busy, idle.jobs) == (3, 0, {}, ())
    assert (busy.slots, busy.taken, busy.busy) == (3, 1, {"q": 1})
    (running,) = busy.jobs
    assert (running.queue, running.id, running.task, running.attempt) == ("q", job, "send", 1)
    assert record.deadline is not None
    assert running.since <= await desk.store.clock.now()
    assert (again.taken, again.jobs, again.instance) == (0, (), idle.instance)
    assert idle.memory is None or idle.memory > 1_000_000
    assert None not in (idle.uptime_ms, busy.poll_age_ms, idle.loop_lag_ms, idle.instance)


async def test_a_worker_that_stops_says_so_while_its_jobs_end() -> None:
    desk = Desk(QueueRef("default", "q"), Lasting())
    go = asyncio.Event()

    async def send() -> None:
        await go.wait()

    async with desk.working(send) as worker:
        job = await desk.enqueue("send")
        await eventually(lambda: _entry(desk, WorkerState.BUSY))
        worker.stop()
        stopping = await eventually(lambda: _entry(desk, WorkerState.SHUTTING_DOWN))
        go.set()

        async def completed() -> bool:
            return (await desk.job(job)).state is State.COMPLETED

        await eventually(completed)

    assert [each.id for each in stopping.jobs] == [job]


async def test_the_version_of_an_app_is_shown() -> None:
    store = Lasting()
    app = Penstock(store=store)

    @app.task
    async def send() -> None: ...

    workers = app.worker(app_version="2026.11.3")

    async def registered() -> list[WorkerEntry]:
        return await store.workers.list_workers("default")

    running = asyncio.create_task(workers.run())
    (entry,) = await eventually(registered)
    workers.stop()
    await running

    assert entry.app_version == "2026.11.3"
    for wrong in ("", "a b", "x" * 129, 3):
        with pytest.raises(OptionError, match="app_version"):
            app.worker(app_version=wrong)


async def test_an_entry_names_a_bounded_number_of_queues_and_jobs() -> None:
    clock = StoppedClock()
    store = MemoryStore()
    shown = Registration(store, "default", "many", {"q": 1}, ["t"], clock=clock)
    statuses = []
    for number in range(300):
        slots = Slots(2)
        slots.take(1)
        statuses.append(QueueStatus(f"a-queue-with-a-name-{number:04}", slots, {}, lease=30, poll=5))
    for each in statuses:
        each.polled_at = clock()
    clock.turn(2)
    with shown.serving(statuses[0]), shown.serving(statuses[1]):
        entry = shown.entry()

    assert (entry.taken, entry.more_jobs, entry.poll_age_ms) == (2, 2, 2_000)
    assert sum(len(name) for name in busy_slots(statuses)) <= BUSY_BYTES
    assert len(busy_slots(statuses)) < 300


async def test_a_loop_that_is_held_up_is_measured() -> None:
    loop = asyncio.get_running_loop()
    lag = LoopLag(loop.time)
    measuring = asyncio.create_task(lag.measure())
    first = lag.beat_at
    await until(lambda: lag.beat_at > first)
    measuring.cancel()
    await asyncio.wait([measuring])

    assert lag.take() >= 0
    assert lag.take() == 0


def test_memory_is_a_number_of_bytes() -> None:
    found = resident_memory()

    assert found is None or found > 1_000_000


async def _found(desk: Desk) -> WorkerEntry | None:
    found = await desk.store.workers.list_workers(desk.queue.tenant)
    return found[0] if found else None


async def test_a_worker_that_is_ordered_to_drain_finishes_its_jobs_and_ends() -> None:
    desk = Desk(QueueRef("default", "q"), Lasting())
    go = asyncio.Event()

    async def send() -> None:
        await go.wait()

    worker = desk.worker(send, name="ada")
    running = asyncio.create_task(worker.run())
    job = await desk.enqueue("send")
    await eventually(lambda: _entry(desk, WorkerState.BUSY))
    assert await desk.store.workers.order_worker("default", "ada", OrderKind.DRAIN, by="bob")
    await eventually(lambda: _entry(desk, WorkerState.SHUTTING_DOWN))
    waiting = await desk.enqueue("send")
    go.set()
    await running

    assert (await desk.job(job)).state is State.COMPLETED
    assert (await desk.job(waiting)).state is State.PENDING


async def test_a_worker_that_is_ordered_to_stop_gives_its_jobs_back() -> None:
    desk = Desk(QueueRef("default", "q"), Lasting())

    async def send() -> None:
        await asyncio.Event().wait()

    worker = desk.worker(send, name="ada")
    running = asyncio.create_task(worker.run())
    job = await desk.enqueue("send")
    await eventually(lambda: _entry(desk, WorkerState.BUSY))
    assert await desk.store.workers.order_worker("default", "ada", OrderKind.STOP)
    await running
    found = await desk.job(job)

    assert (found.state, found.attempts) == (State.PENDING, 0)


async def test_an_order_is_followed_by_notification(
    store: Store, queue: QueueRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Long before the entry is renewed, on every store."""
    monkeypatch.setattr(registration, "LEASE", 3_000.0)
    app = Penstock(store=store.clone(), tenant=queue.tenant)

    @app.queue(queue.name).task
    async def send() -> None: ...

    workers = app.worker(name="ada")
    running = asyncio.create_task(workers.run())
    desk = Desk(queue, store)
    async with app:
        await eventually(lambda: _found(desk))
        assert await store.workers.order_worker(queue.tenant, "ada", OrderKind.DRAIN)
        await running

        assert await store.workers.list_workers(queue.tenant) == []


async def test_an_order_of_a_newer_version_is_named_and_not_followed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Newer(Lasting):
        async def worker_order(self, tenant: str, worker: str, instance: str) -> WorkerOrder | None:
            return WorkerOrder("hibernate", 1, "bob")

    desk = Desk(QueueRef("default", "q"), Newer())

    async def send() -> None: ...

    async with desk.working(send):
        await until(lambda: "hibernate" in caplog.text)
        job = await desk.enqueue("send")
        assert (await desk.ended(job)).state is State.COMPLETED

    assert caplog.text.count("the order 'hibernate' by bob is not known to this version") == 1
