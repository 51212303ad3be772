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
from penstock.maintenance.listening import QUIET
from penstock.maintenance.queue_maintenance import QueueMaintenance
from penstock.maintenance.time_keeper import TimeKeeper
from penstock.stores.bounds import PROMOTE_LIMIT
from penstock.stores.memory import MemoryStore
from penstock.stores.protocol import Store, Subscription
from penstock.stores.values import Relay, Spawn, Topic
from tests.kit.intercepted import PARTS, InterceptedStore, Part
from tests.kit.waiting import PATIENCE, eventually
from tests.schedules.kit import made, put
from tests.worker.kit import Desk, running

DUTIES = {
    "promote": "promote",
    "expired": "recover",
    "prune": "prune",
    "event_range": "trim",
    "due_schedules": "fire",
    "list_relay_entries": "relay",
}


class Counting(InterceptedStore):
    """Counts the calls it gets, and fails those that it is told to fail."""

    def __init__(self, failing: Sequence[str] = (), error: Exception | None = None) -> None:
        super().__init__()
        self.calls: Counter[str] = Counter()
        self.failing = set(failing)
        self.error = error or StoreUnavailableError("down")
        for name in PARTS:
            setattr(self, name, _CountingPart(getattr(self, name), self))


class _CountingPart(Part):
    def __init__(self, real: Any, store: Counting) -> None:
        super().__init__(real)
        self.store = store

    def __getattr__(self, name: str) -> Any:
        found = super().__getattr__(name)
        if not asyncio.iscoroutinefunction(found):
            return found

        async def counted(*args: Any, **kwargs: Any) -> Any:
            self.store.calls[name] += 1
            if name in self.store.failing:
                raise self.store.error
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
    scheduler = QueueMaintenance(store, queue, tick=60)
    await scheduler.tick()
    await scheduler.tick()

    assert all(store.calls[each] for each in DUTIES)
    # Folding and trimming both ask how far the log goes.
    failed = 2 if failing == "event_range" else 1
    assert caplog.text.count("failed, will repeat") == failed
    assert "works again" not in caplog.text
    store.failing.clear()
    await scheduler.tick()
    assert caplog.text.count("works again") == failed


async def test_an_idle_queue_costs_few_calls(queue: QueueRef, monkeypatch: pytest.MonkeyPatch) -> None:
    """A minute of a worker's upkeep at its usual tick, with time a thousand times as fast."""
    store = Counting()
    await store.moves.enqueue(queue, [NewJob(id="old", nonce="n", task="t", payload=b"{}")])
    await store.moves.cancel(queue, ["old"])
    store.calls.clear()
    monkeypatch.setattr("random.uniform", lambda low, high: (low + high) / 2)
    async with at_work(QueueMaintenance(store, queue, tick=0.05).run):
        await eventually(lambda: _answer(store.calls["due_queues"] >= 40))

    others = store.calls.total() - store.calls["due_queues"]
    # One visit of the sweep, at most.
    assert others <= 10


async def test_delayed_jobs_are_promoted_where_no_worker_claims(queue: QueueRef) -> None:
    store = MemoryStore()
    await store.moves.enqueue(queue, [NewJob(id="j", nonce="n", task="t", payload=b"{}", delay_ms=60_000)])
    async with at_work(TimeKeeper(store, queue.tenant, tick=0.05).run):
        await store.clock.advance_clock(60_000)
        await eventually(lambda: _has(store, queue, State.PENDING, 1))


async def test_a_keeper_serves_queues_that_come_later_and_stops_when_told(queue: QueueRef) -> None:
    store = MemoryStore()
    keeper = TimeKeeper(store, queue.tenant, tick=0.05)
    run = asyncio.create_task(keeper.run())
    later = QueueRef(queue.tenant, "later")
    await put(store, later, made(), next_at=1)
    await eventually(lambda: _has(store, later, State.PENDING, 1))
    keeper.stop()
    await asyncio.wait_for(run, PATIENCE)


async def test_a_schedule_fires_at_its_instant_and_not_at_the_next_tick(queue: QueueRef) -> None:
    store = MemoryStore()
    async with at_work(QueueMaintenance(store, queue, tick=300).run):
        await asyncio.sleep(0)
        await put(store, queue, made(spec=Every.of(1)), next_at=await store.clock.now() + 300)
        await eventually(lambda: _fired(store, queue, 2))

    jobs = [job for job in (await store.reads.get(queue, await _ids(store, queue))) if job is not None]
    assert all(0 <= job.enqueued_at - (job.instant or 0) < 1_500 for job in jobs)


async def test_a_turned_clock_fires_what_came_due(queue: QueueRef) -> None:
    store = MemoryStore()
    hourly = Every.of(3600)
    await put(store, queue, made(spec=hourly), next_at=next_after(hourly, await store.clock.now()))
    async with at_work(QueueMaintenance(store, queue, tick=300).run):
        await store.clock.advance_clock(3_600_000)
        await eventually(lambda: _fired(store, queue, 1))


async def test_a_chain_of_ten_jobs_takes_no_ten_ticks(queue: QueueRef) -> None:
    desk = Desk(queue)
    ran: list[int] = []

    async def link(n: int) -> None:
        ran.append(n)

    await desk.store.moves.enqueue(queue, _chain(queue, 10))
    began = time.monotonic()
    async with desk.working(link, tick=3_600.0, poll=3_600.0):
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
    await store.moves.enqueue(queue, [new for number, new in enumerate(chain) if not number % 2], spawns)
    async with (
        here.working(link, tick=3_600.0, poll=3_600.0),
        running(there.worker(link, tick=3_600.0, poll=3_600.0)),
    ):
        await eventually(lambda: _answer(len(ran) == 10))

    assert ran == list(range(10))


async def test_a_burst_follows_a_chain_to_its_end(queue: QueueRef) -> None:
    desk = Desk(queue)
    ran: list[int] = []

    async def link(n: int) -> None:
        ran.append(n)

    await desk.store.moves.enqueue(queue, _chain(queue, 10))
    await desk.burst(link, tick=300.0)

    assert ran == list(range(10))


async def test_an_ending_by_another_process_is_carried_after_a_ring(queue: QueueRef) -> None:
    store = MemoryStore()
    await store.moves.enqueue(queue, _chain(queue, 2))
    async with at_work(QueueMaintenance(store, queue, tick=300).run):
        await asyncio.sleep(0)
        (job,) = (await store.moves.claim(queue, worker="w", limit=1, lease_ms=30_000)).jobs
        await store.moves.settle(queue, [Complete(job.id, job.token)])
        await eventually(lambda: _has(store, queue, State.PENDING, 1))


class Ringing(InterceptedStore):
    """Knows for which topics subscriptions hang."""

    def __init__(self) -> None:
        super().__init__()
        self.hung: Counter[Topic] = Counter()

    @asynccontextmanager
    async def subscribe(self, queue: QueueRef, topic: Topic) -> AsyncIterator[Subscription]:
        async with self.real.notifier.subscribe(queue, topic) as subscription:
            self.hung[topic] += 1
            try:
                yield subscription
            finally:
                self.hung[topic] -= 1


class Pauses:
    """Stands for the clock of those who listen: a pause lasts until the test ends it."""

    def __init__(self) -> None:
        self.asked: list[float] = []
        self.over = asyncio.Event()

    async def sleep(self, seconds: float) -> None:
        self.asked.append(seconds)
        await self.over.wait()


@asynccontextmanager
async def just_rung(
    queue: QueueRef, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[Ringing, Pauses]]:
    """A store whose scheduler has heard of a job and of its ending, and listens to neither for a while."""
    store, pauses = Ringing(), Pauses()
    monkeypatch.setattr("penstock.maintenance.listening.asyncio", pauses)
    # The looks are as early as they can be.
    monkeypatch.setattr("random.uniform", lambda low, high: low)
    async with at_work(QueueMaintenance(store, queue, tick=300).run):
        await eventually(lambda: _answer(store.hung == {Topic.READY: 1, Topic.ENDED: 1}))
        await _end_one(store, queue)
        await eventually(lambda: _answer(len(pauses.asked) == 2))
        yield store, pauses


async def test_a_busy_queue_is_not_heard_of_at_every_call(
    queue: QueueRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with just_rung(queue, monkeypatch) as (store, pauses):
        meanwhile = dict(store.hung)
        pauses.over.set()
        await eventually(lambda: _answer(store.hung == {Topic.READY: 1, Topic.ENDED: 1}))

    assert meanwhile == {Topic.READY: 0, Topic.ENDED: 0}
    assert pauses.asked[:2] == [QUIET, QUIET]


async def test_what_ends_while_nobody_listens_is_carried_soon(
    queue: QueueRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with just_rung(queue, monkeypatch) as (store, pauses):
        await store.moves.enqueue(queue, _chain(queue, 2))
        # The looks that were asked for before are over when it ends: they need turns of the event loop only.
        for _ in range(1_000):
            await asyncio.sleep(0)
        await _end_one(store, queue)
        waits = await _has(store, queue, State.PENDING, 0)
        pauses.over.set()
        await eventually(lambda: _has(store, queue, State.PENDING, 1))

    assert waits


async def test_relays_are_carried_on_the_tick_without_a_notification(queue: QueueRef) -> None:
    class Silent(InterceptedStore):
        async def list_relay_entries(
            self, queue: QueueRef, limit: int = 200, *, after: int = 0
        ) -> list[Relay]:
            found = await self.real.flows.list_relay_entries(queue, limit, after=after)
            self.looks = getattr(self, "looks", 0) + 1
            return found if self.looks > 2 else []

    store = Silent()
    await store.moves.enqueue(queue, _chain(queue, 2))
    (job,) = (await store.moves.claim(queue, worker="w", limit=1, lease_ms=30_000)).jobs
    await store.moves.settle(queue, [Complete(job.id, job.token)])
    async with at_work(QueueMaintenance(store, queue, tick=0.05).run):
        await eventually(lambda: _has(store, queue, State.PENDING, 1))


async def test_thousands_of_jobs_due_at_once_do_not_stall_claims(store: Store, queue: QueueRef) -> None:
    """A claim promotes a bounded number, whatever is due, and brings jobs each time."""
    for start in range(0, 3_000, 500):
        new = [
            NewJob(id=f"j{n}", nonce="n", task="t", payload=b"{}", delay_ms=60_000)
            for n in range(start, start + 500)
        ]
        await store.moves.enqueue(queue, new)
    await store.clock.advance_clock(61_000)
    seen = (await store.events.event_range(queue))[1]

    for _ in range(10):
        claims = await store.moves.claim(queue, worker="w", limit=50, lease_ms=30_000)
        events = await store.events.read_events(queue, seen, limit=10_000)
        seen = events[-1].seq
        promoted = sum(event.move is Move.PROMOTE for event in events)

        assert len(claims.jobs) == 50
        assert promoted <= PROMOTE_LIMIT
    await store.clock.advance_clock(-61_000)


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
    if not (await store.reads.counts(queue))[State.PENDING]:
        await store.moves.enqueue(queue, [NewJob(id="one", nonce="n", task="t", payload=b"{}")])
    (job,) = (await store.moves.claim(queue, worker="w", limit=1, lease_ms=30_000)).jobs
    await store.moves.settle(queue, [Complete(job.id, job.token)])


async def _answer(value: bool) -> bool:
    return value


async def _has(store: Store, queue: QueueRef, state: State, count: int) -> bool:
    return (await store.reads.counts(queue))[state] == count


async def _fired(store: Store, queue: QueueRef, count: int) -> bool:
    return sum((await store.reads.counts(queue)).values()) >= count


async def _ids(store: Store, queue: QueueRef) -> list[str]:
    return [event.job or "" for event in await store.events.read_events(queue) if event.move is Move.ENQUEUE]
