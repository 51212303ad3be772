"""Duties beside each other: none stops another, each is done in time, and an idle queue costs little."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from penstock.core.cron.instants import next_after
from penstock.core.cron.spec import Every
from penstock.core.errors import StoreUnavailableError
from penstock.core.flows import JobRef
from penstock.core.job import NewJob, QueueRef
from penstock.core.moves import Complete, Move
from penstock.core.states import State
from penstock.scheduler.keeper import TimeKeeper
from penstock.scheduler.scheduler import Scheduler
from penstock.stores.bounds import PROMOTE_LIMIT
from penstock.stores.memory import MemoryStore
from penstock.stores.protocol import Bell, Store
from penstock.stores.values import Relay, Spawn, Topic
from tests.schedules.kit import made, put
from tests.worker.kit import Desk, eventually, running

DUTIES = {
    "promote": "promote",
    "expired": "recover",
    "prune": "prune",
    "event_range": "trim",
    "due_schedules": "fire",
    "relays": "relay",
}


class Counting(MemoryStore):
    """Counts the calls it gets, and fails those that it is told to fail."""

    def __init__(self, failing: Sequence[str] = (), error: Exception | None = None) -> None:
        super().__init__()
        self.calls: Counter[str] = Counter()
        self.failing = set(failing)
        self.error = error or StoreUnavailableError("down")

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name.startswith("_") or not asyncio.iscoroutinefunction(found):
            return found

        async def counted(*args: Any, **kwargs: Any) -> Any:
            self.calls[name] += 1
            if name in self.failing:
                raise self.error
            return await found(*args, **kwargs)

        return counted


@asynccontextmanager
async def at_work(runs: Callable[[], Awaitable[None]]) -> AsyncIterator[None]:
    """Something that runs for the time of the block."""
    run = asyncio.ensure_future(runs())
    try:
        yield
    finally:
        run.cancel()
        await asyncio.wait([run])


@pytest.mark.parametrize("error", [StoreUnavailableError("down"), RuntimeError("a fault")])
@pytest.mark.parametrize("failing", DUTIES)
async def test_a_duty_that_fails_stops_no_other(
    queue: QueueRef, failing: str, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    store = Counting([failing], error)
    scheduler = Scheduler(store, queue, tick=60)
    await scheduler.tick()
    await scheduler.tick()

    assert all(store.calls[each] for each in DUTIES)
    assert caplog.text.count("failed, will repeat") == 1
    assert "works again" not in caplog.text
    store.failing.clear()
    await scheduler.tick()
    assert caplog.text.count("works again") == 1


async def test_an_idle_queue_costs_few_calls(queue: QueueRef, monkeypatch: pytest.MonkeyPatch) -> None:
    """A minute of a worker's upkeep at its usual tick, with time a thousand times as fast."""
    store = Counting()
    await store.enqueue(queue, [NewJob(id="old", nonce="n", task="t", payload=b"{}")])
    await store.cancel(queue, ["old"])
    store.calls.clear()
    monkeypatch.setattr("random.uniform", lambda low, high: (low + high) / 2)
    async with at_work(Scheduler(store, queue, tick=0.05).run):
        await eventually(lambda: _answer(store.calls["due_queues"] >= 40))

    others = store.calls.total() - store.calls["due_queues"]
    # One visit of the sweep, at most.
    assert others <= 10


async def test_delayed_jobs_are_promoted_where_no_worker_claims(queue: QueueRef) -> None:
    store = MemoryStore()
    await store.enqueue(queue, [NewJob(id="j", nonce="n", task="t", payload=b"{}", delay_ms=60_000)])
    async with at_work(TimeKeeper(store, queue.tenant, tick=0.05).run):
        await store.turn(60_000)
        await eventually(lambda: _has(store, queue, State.PENDING, 1))


async def test_a_keeper_serves_queues_that_come_later_and_stops_when_told(queue: QueueRef) -> None:
    store = MemoryStore()
    keeper = TimeKeeper(store, queue.tenant, tick=0.05)
    run = asyncio.create_task(keeper.run())
    later = QueueRef(queue.tenant, "later")
    await put(store, later, made(), next_at=1)
    await eventually(lambda: _has(store, later, State.PENDING, 1))
    keeper.stop()
    await asyncio.wait_for(run, 10)


async def test_a_schedule_fires_at_its_instant_and_not_at_the_next_tick(queue: QueueRef) -> None:
    store = MemoryStore()
    async with at_work(Scheduler(store, queue, tick=300).run):
        await asyncio.sleep(0)
        await put(store, queue, made(spec=Every.of(1)), next_at=await store.now() + 300)
        await eventually(lambda: _fired(store, queue, 2))

    jobs = [job for job in (await store.get(queue, await _ids(store, queue))) if job is not None]
    assert all(0 <= job.enqueued_at - (job.instant or 0) < 1_500 for job in jobs)


async def test_a_turned_clock_fires_what_came_due(queue: QueueRef) -> None:
    store = MemoryStore()
    hourly = Every.of(3600)
    await put(store, queue, made(spec=hourly), next_at=next_after(hourly, await store.now()))
    async with at_work(Scheduler(store, queue, tick=300).run):
        await store.turn(3_600_000)
        await eventually(lambda: _fired(store, queue, 1))


async def test_a_chain_of_ten_jobs_takes_no_ten_ticks(queue: QueueRef) -> None:
    desk = Desk(queue)
    ran: list[int] = []

    async def link(n: int) -> None:
        ran.append(n)

    await desk.store.enqueue(queue, _chain(queue, 10))
    began = time.monotonic()
    async with desk.working(link, tick=300.0, poll=300.0):
        await desk.ended("c9")

    assert ran == list(range(10))
    assert time.monotonic() - began < 10


async def test_a_chain_over_two_queues_is_carried_by_each_ones_worker(queue: QueueRef) -> None:
    store = MemoryStore()
    other = QueueRef(queue.tenant, "other")
    here, there = Desk(queue, store), Desk(other, store)
    ran: list[int] = []

    async def link(n: int) -> None:
        ran.append(n)

    chain = _chain(queue, 10, [queue.name, "other"])
    spawns = [Spawn("other", new) for number, new in enumerate(chain) if number % 2]
    await store.enqueue(queue, [new for number, new in enumerate(chain) if not number % 2], spawns)
    async with (
        here.working(link, tick=300.0, poll=300.0),
        running(there.worker(link, tick=300.0, poll=300.0)),
    ):
        await eventually(lambda: _answer(len(ran) == 10))

    assert ran == list(range(10))


async def test_a_burst_follows_a_chain_to_its_end(queue: QueueRef) -> None:
    desk = Desk(queue)
    ran: list[int] = []

    async def link(n: int) -> None:
        ran.append(n)

    await desk.store.enqueue(queue, _chain(queue, 10))
    await desk.burst(link, tick=300.0)

    assert ran == list(range(10))


async def test_an_ending_by_another_process_is_carried_after_a_ring(queue: QueueRef) -> None:
    store = MemoryStore()
    await store.enqueue(queue, _chain(queue, 2))
    async with at_work(Scheduler(store, queue, tick=300).run):
        await asyncio.sleep(0)
        (job,) = (await store.claim(queue, worker="w", limit=1, lease_ms=30_000)).jobs
        await store.settle(queue, [Complete(job.id, job.token)])
        await eventually(lambda: _has(store, queue, State.PENDING, 1))


class Ringing(MemoryStore):
    """Knows for which topics bells hang."""

    def __init__(self) -> None:
        super().__init__()
        self.hung: Counter[Topic] = Counter()

    @asynccontextmanager
    async def bell(self, queue: QueueRef, topic: Topic) -> AsyncIterator[Bell]:
        async with super().bell(queue, topic) as bell:
            self.hung[topic] += 1
            try:
                yield bell
            finally:
                self.hung[topic] -= 1


@asynccontextmanager
async def just_rung(queue: QueueRef) -> AsyncIterator[Ringing]:
    """A store whose scheduler has heard of an ending, and does not listen for a while."""
    store = Ringing()
    async with at_work(Scheduler(store, queue, tick=300).run):
        await eventually(lambda: _answer(store.hung[Topic.ENDED] == 1))
        await _end_one(store, queue)
        await eventually(lambda: _answer(store.hung[Topic.ENDED] == 0))
        yield store


async def test_a_busy_queue_is_not_heard_of_at_every_call(queue: QueueRef) -> None:
    async with just_rung(queue) as store:
        await eventually(lambda: _answer(store.hung[Topic.ENDED] == 1))


async def test_what_ends_while_nobody_listens_is_carried_soon(
    queue: QueueRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The first looks are over when it ends.
    monkeypatch.setattr("random.uniform", lambda low, high: low)
    # Longer than a machine under load may stall.
    monkeypatch.setattr("penstock.scheduler.listening.QUIET", 4.0)
    async with just_rung(queue) as store:
        await store.enqueue(queue, _chain(queue, 2))
        await asyncio.sleep(0.1)
        await _end_one(store, queue)
        assert store.hung[Topic.ENDED] == 0
        await eventually(lambda: _has(store, queue, State.PENDING, 1))


async def test_relays_are_carried_on_the_tick_where_no_bell_rings(queue: QueueRef) -> None:
    class Silent(MemoryStore):
        async def relays(self, queue: QueueRef, limit: int = 200, *, after: int = 0) -> list[Relay]:
            found = await super().relays(queue, limit, after=after)
            self.looks = getattr(self, "looks", 0) + 1
            return found if self.looks > 2 else []

    store = Silent()
    await store.enqueue(queue, _chain(queue, 2))
    (job,) = (await store.claim(queue, worker="w", limit=1, lease_ms=30_000)).jobs
    await store.settle(queue, [Complete(job.id, job.token)])
    async with at_work(Scheduler(store, queue, tick=0.05).run):
        await eventually(lambda: _has(store, queue, State.PENDING, 1))


async def test_thousands_of_jobs_due_at_once_do_not_stall_claims(store: Store, queue: QueueRef) -> None:
    """A claim promotes a bounded number, whatever is due, and brings jobs each time."""
    for start in range(0, 3_000, 500):
        new = [
            NewJob(id=f"j{n}", nonce="n", task="t", payload=b"{}", delay_ms=60_000)
            for n in range(start, start + 500)
        ]
        await store.enqueue(queue, new)
    await store.turn(61_000)
    seen = (await store.event_range(queue))[1]

    for _ in range(10):
        claims = await store.claim(queue, worker="w", limit=50, lease_ms=30_000)
        events = await store.events(queue, seen, limit=10_000)
        seen = events[-1].seq
        promoted = sum(event.move is Move.PROMOTE for event in events)

        assert len(claims.jobs) == 50
        assert promoted <= PROMOTE_LIMIT
    await store.turn(-61_000)


def _chain(queue: QueueRef, count: int, names: Sequence[str] = ()) -> list[NewJob]:
    """Jobs that each wait for the one before."""

    def ref(number: int) -> JobRef:
        return JobRef(names[number % len(names)] if names else queue.name, f"c{number}")

    return [
        NewJob(
            id=f"c{number}",
            nonce="n",
            task="link",
            payload=b'{"n":%d}' % number,
            awaits=(ref(number - 1),) if number else (),
            parents=(ref(number + 1),) if number + 1 < count else (),
        )
        for number in range(count)
    ]


async def _end_one(store: Store, queue: QueueRef) -> None:
    if not (await store.counts(queue))[State.PENDING]:
        await store.enqueue(queue, [NewJob(id="one", nonce="n", task="t", payload=b"{}")])
    (job,) = (await store.claim(queue, worker="w", limit=1, lease_ms=30_000)).jobs
    await store.settle(queue, [Complete(job.id, job.token)])


async def _answer(value: bool) -> bool:
    return value


async def _has(store: Store, queue: QueueRef, state: State, count: int) -> bool:
    return (await store.counts(queue))[state] == count


async def _fired(store: Store, queue: QueueRef, count: int) -> bool:
    return sum((await store.counts(queue)).values()) >= count


async def _ids(store: Store, queue: QueueRef) -> list[str]:
    return [event.job or "" for event in await store.events(queue) if event.move is Move.ENQUEUE]
