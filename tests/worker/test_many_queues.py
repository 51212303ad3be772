"""Workers of many queues in one process: what they share, and that every queue is served."""

import asyncio
import gc
import logging
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock import Penstock
from penstock.core.errors import StoreUnavailableError, StoreVersionError
from penstock.core.job import QueueRef
from penstock.core.limits import Declaration, Mode, Rate
from penstock.core.moves import Move
from penstock.core.states import State
from penstock.stores.memory import MemoryStore
from penstock.stores.notifier import LocalNotifier
from penstock.stores.protocol import Store
from penstock.stores.values import ClaimablePage
from penstock.worker import poller, registration
from penstock.worker.pool import WorkerPool
from penstock.worker.registration import Registration
from tests.kit.intercepted import InterceptedStore
from tests.kit.waiting import PATIENCE, SLOWNESS, eventually, until

MANY = 1_000
CROWD = 100


def renewers(before: set[threading.Thread]) -> list[threading.Thread]:
    """The threads that renew leases, without those that were there before."""
    return [each for each in set(threading.enumerate()) - before if each.name == "penstock-leases"]


class Crowd:
    """An app with many queues, whose one task may be enqueued to any of them."""

    def __init__(self, store: Store, count: int, tenant: str = "default") -> None:
        self.app = Penstock(store=store, tenant=tenant)
        self.names = [f"q{number}" for number in range(count)]
        self.ran: list[tuple[str, str]] = []
        self.gate = asyncio.Event()
        self.gate.set()
        for name in self.names:
            self.app.queue(name)

        @self.app.task(name="work")
        async def work(what: str) -> None:
            self.ran.append(("", what))
            await self.gate.wait()

    @asynccontextmanager
    async def working(self, **options: Any) -> AsyncIterator[WorkerPool]:
        worker = self.app.worker(self.names, **options)
        async with self.app:
            running = asyncio.create_task(worker.run())
            try:
                yield worker
            finally:
                worker.stop()
                await asyncio.wait_for(running, PATIENCE)

    async def send(self, name: str, **options: Any) -> Any:
        return await self.app.by_name("work", queue=name).options(**options).enqueue(what=name)

    async def has_run(self, *names: str) -> bool:
        return {what for _, what in self.ran} >= set(names)


async def test_a_job_in_any_of_many_queues_is_run(store: Store, queue: QueueRef) -> None:
    crowd = Crowd(store.clone(), CROWD, queue.tenant)
    early = QueueRef(queue.tenant, "q3")
    async with crowd.app:
        await crowd.send(early.name)
    async with crowd.working():
        await eventually(lambda: crowd.has_run("q3"))
        for name in ("q0", "q50", "q99", "q50"):
            await crowd.send(name)
        await eventually(lambda: crowd.has_run("q0", "q50", "q99"))
        await crowd.send("q7", delay=0.2)
        await eventually(lambda: crowd.has_run("q7"))
        counts = await store.reads.counts(early)

    assert counts[State.COMPLETED] == 1


async def test_a_worker_over_a_thousand_queues_takes_few_descriptors_threads_and_tasks() -> None:
    crowd = Crowd(MemoryStore(), MANY)
    before = len(list(Path("/proc/self/fd").iterdir())), threading.active_count(), len(asyncio.all_tasks())
    async with crowd.working():
        await crowd.send("q999")
        await eventually(lambda: crowd.has_run("q999"))
        after = len(list(Path("/proc/self/fd").iterdir())), threading.active_count(), len(asyncio.all_tasks())

    assert after[0] - before[0] <= 64
    assert after[1] - before[1] <= 2
    assert after[2] - before[2] <= 64


async def test_a_queue_that_is_idle_again_keeps_no_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.worker.claim.LINGER", 0.05)
    crowd = Crowd(MemoryStore(), CROWD)
    async with crowd.working(poll=0.2) as pool:
        [many] = pool._workers
        assert isinstance(many, poller.QueuePoller)
        await crowd.send("q1")
        await eventually(lambda: crowd.has_run("q1"))

        async def nobody() -> bool:
            return not many._awake

        await eventually(nobody)
        await crowd.send("q1")

        async def twice() -> bool:
            return len(crowd.ran) == 2

        await eventually(twice)


async def test_a_key_held_back_by_a_time_that_the_clock_was_set_back_from_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its queue is asleep, and what stands in it does not become due for hours."""
    monkeypatch.setattr("penstock.worker.claim.LINGER", 0.05)
    store, queue, hour = MemoryStore(), QueueRef("default", "q1"), 3_600_000
    crowd = Crowd(store, CROWD)
    await store.queues.open_queue(queue)
    await store.queues.declare(queue, Declaration(mode=Mode.KEYED, key_limit=5, key_rate=Rate(1, hour)))
    async with crowd.working(poll=0.1) as pool:
        [many] = pool._workers
        assert isinstance(many, poller.QueuePoller)
        for _ in range(2):
            await crowd.send("q1", key="k")

        async def asleep() -> bool:
            return len(crowd.ran) == 1 and not many._awake

        await eventually(asleep)
        await store.clock.advance_clock(-2 * hour)

        async def twice() -> bool:
            return len(crowd.ran) == 2

        await eventually(twice)


async def test_leases_in_a_crowd_are_renewed() -> None:
    store = MemoryStore()
    crowd = Crowd(store, CROWD)
    crowd.gate.clear()
    async with crowd.working(lease=2.0 * SLOWNESS):
        handle = await crowd.send("q5")
        await eventually(lambda: crowd.has_run("q5"))

        async def renewed() -> bool:
            events = await store.events.read_events(QueueRef("default", "q5"))
            leases = await store.reads.leases(QueueRef("default", "q5"))
            return len(leases) == 1 and leases[0].deadline > events[-1].at + 2_000 * SLOWNESS

        await eventually(renewed)
        crowd.gate.set()
        await handle.result(timeout=PATIENCE)
        moves = [each.move for each in await store.events.read_events(QueueRef("default", "q5"))]

    assert moves == [Move.ENQUEUE, Move.CLAIM, Move.COMPLETE]


async def test_a_look_finds_what_no_notification_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    monkeypatch.setattr(LocalNotifier, "notify_tenant", lambda *_: None)
    crowd = Crowd(store, CROWD)
    async with crowd.working(poll=0.1):
        await crowd.send("q42")
        await eventually(lambda: crowd.has_run("q42"))


async def test_a_failure_that_no_waiting_mends_ends_a_crowd() -> None:
    class Foreign(InterceptedStore):
        async def claimable_queues(self, *args: Any, **given: Any) -> ClaimablePage:
            raise StoreVersionError("newer")

    crowd = Crowd(Foreign(), CROWD)
    worker = crowd.app.worker(crowd.names)
    with pytest.raises(StoreVersionError):
        await asyncio.wait_for(worker.run(), PATIENCE)


async def test_a_crowd_outlives_a_store_that_is_gone_for_a_while() -> None:
    class Failing(InterceptedStore):
        fails = 3

        async def claimable_queues(self, *args: Any, **given: Any) -> ClaimablePage:
            Failing.fails -= 1
            if Failing.fails >= 0:
                raise StoreUnavailableError("away")
            return await self.real.upkeep.claimable_queues(*args, **given)

    crowd = Crowd(Failing(), CROWD)
    async with crowd.app:
        await crowd.send("q1")
    async with crowd.working():
        await eventually(lambda: crowd.has_run("q1"))


async def test_a_crowd_gives_running_jobs_back_when_it_has_to_stop_at_once() -> None:
    store = MemoryStore()
    crowd = Crowd(store, CROWD)
    crowd.gate.clear()
    async with crowd.working() as worker:
        await crowd.send("q5")
        await eventually(lambda: crowd.has_run("q5"))
        worker.stop(now=True)
    counts = await store.reads.counts(QueueRef("default", "q5"))

    assert counts[State.PENDING] == 1


async def test_a_crowd_drains_before_it_stops() -> None:
    store = MemoryStore()
    crowd = Crowd(store, CROWD)
    crowd.gate.clear()
    async with crowd.working() as worker:
        await crowd.send("q5")
        await eventually(lambda: crowd.has_run("q5"))
        worker.stop()
        await asyncio.sleep(0)
        crowd.gate.set()
    counts = await store.reads.counts(QueueRef("default", "q5"))

    assert counts[State.COMPLETED] == 1


async def test_the_start_of_a_crowd_is_one_line_that_names_few_queues(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "penstock")
    crowd = Crowd(MemoryStore(), CROWD)
    async with crowd.working():
        await crowd.send("q5")
        await eventually(lambda: crowd.has_run("q5"))
    lines = [each for each in caplog.records if each.getMessage().startswith("worker st")]

    assert [each.getMessage() for each in lines] == ["worker started", "worker stopped"]
    queues = vars(lines[0])["queues"]
    assert len(queues) < 500
    assert queues.endswith(" more")


async def test_the_entry_of_a_worker_with_very_many_queues_is_bounded() -> None:
    store = MemoryStore()
    queues = {f"a-queue-with-a-long-name-{number:06}": 10 for number in range(20_000)}
    many = Registration(store, "default", "many", queues, ["known"])
    other = Registration(store, "default", "other", {"small": 1}, ["else"])
    async with many.held(), other.held():

        async def both() -> bool:
            return len(await store.workers.list_workers("default")) == 2

        await eventually(both)
        [entry, _] = await store.workers.list_workers("default")
        last = "a-queue-with-a-long-name-019999"
        found = [await each.knows(last, task) for each in (other, many) for task in ("known", "unknown")]

    named = sum(len(name) for name in entry.queues)
    assert named <= registration.NAMED_BYTES
    assert len(entry.queues) + entry.more_queues == 20_000
    assert found == [True, False, False, False]


async def test_the_queues_of_a_process_share_one_lease_renewer() -> None:
    app = Penstock("memory://")
    done: list[str] = []
    for number in range(10):

        @app.queue(f"q{number}").task(name=f"work{number}")
        async def work() -> None:
            done.append("")
            await asyncio.sleep(0)

    worker = app.worker()
    before = set(threading.enumerate())
    async with app:
        running = asyncio.create_task(worker.run())
        for number in range(10):
            await app.task_named(f"work{number}").enqueue()

        async def all_done() -> bool:
            return len(done) == 10

        await eventually(all_done)
        found = renewers(before)
        worker.stop()
        await running

    assert len(found) == 1
    await until(lambda: not renewers(before))


async def test_every_failure_of_a_pool_is_retrieved() -> None:
    class Failing:
        def stop(self, now: bool = False) -> None:
            pass

        async def run(self) -> None:
            await asyncio.sleep(0)
            raise StoreUnavailableError("gone")

    told: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    with pytest.raises(StoreUnavailableError):
        await WorkerPool([Failing(), Failing(), Failing()]).run()
    gc.collect()

    assert told == []
