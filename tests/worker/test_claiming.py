"""When jobs are claimed, and how many."""

import asyncio
import itertools
import threading
from typing import Any

import pytest

from penstock.core.job import QueueRef
from penstock.core.moves import Move
from penstock.core.outcomes import Claims
from penstock.core.states import State
from penstock.stores.values import Pause
from tests.kit.intercepted import InterceptedStore
from tests.kit.waiting import PATIENCE
from tests.worker.kit import Cut, Desk, loop_turns, rests, running

NEVER: dict[str, Any] = {"poll": 3600.0, "tick": 3600.0}
"""Nothing that a worker does by itself comes within the time of a test: it has to be woken."""


async def test_an_enqueue_wakes_an_idle_worker_at_once(desk: Desk) -> None:
    ran = 0

    async def note() -> None:
        nonlocal ran
        ran += 1

    async with desk.working(note, **NEVER) as worker:
        for _ in range(20):
            await rests(worker)
            await desk.ended(await desk.enqueue("note"))

    assert ran == 20


async def test_a_delayed_job_starts_when_it_is_due_and_not_at_the_poll(desk: Desk) -> None:
    async def note() -> None: ...

    async with desk.working(note, **NEVER):
        job = await desk.enqueue("note", delay_ms=300)
        await desk.ended(job)

    at = {event.move: event.at for event in await desk.events(job)}
    assert at[Move.CLAIM] - at[Move.ENQUEUE] >= 300


async def test_turning_the_clock_makes_delayed_jobs_due(desk: Desk) -> None:
    async def note() -> None: ...

    job = await desk.enqueue("note", delay_ms=3_600_000)
    async with desk.working(note, poll=60):
        await desk.store.clock.advance_clock(3_600_000)

        assert (await desk.ended(job)).state is State.COMPLETED


async def test_never_more_than_the_slots_run_and_what_is_active_runs(desk: Desk) -> None:
    running = most = 0
    turns = itertools.count()
    leases: list[tuple[int, int]] = []

    async def work() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        # Not all of them end together.
        await loop_turns(next(turns) % 5 + 1)
        leases.append((await desk.active(), running))
        running -= 1

    for _ in range(200):
        await desk.enqueue("work")
    await desk.burst(work, concurrency=7)

    assert len(leases) == 200
    assert most == 7
    assert all(active <= 7 for active, _ in leases)


async def test_threads_keep_to_the_slots_too(desk: Desk) -> None:
    running = 0
    seen: list[int] = []
    lock, together = threading.Lock(), threading.Barrier(3)

    def work() -> None:
        nonlocal running
        with lock:
            running += 1
        together.wait(PATIENCE)
        with lock:
            seen.append(running)
            running -= 1

    for _ in range(39):
        await desk.enqueue("work")
    await desk.burst(work, concurrency=3)

    assert len(seen) == 39
    assert max(seen) == 3


async def test_slots_that_free_up_together_are_claimed_together(queue: QueueRef) -> None:
    class Counting(InterceptedStore):
        claims = 0
        settles = 0

        async def claim(self, *args: Any, **kwargs: Any) -> Claims:
            self.claims += 1
            return await self.real.moves.claim(*args, **kwargs)

        async def settle(self, *args: Any, **kwargs: Any) -> Any:
            self.settles += 1
            return await self.real.moves.settle(*args, **kwargs)

    store = Counting()
    desk = Desk(queue, store)

    async def noop() -> None: ...

    for _ in range(500):
        await desk.enqueue("noop")
    await desk.burst(noop, concurrency=50)

    assert store.claims <= 13
    assert store.settles <= 13


async def test_jobs_start_in_the_order_they_came(desk: Desk) -> None:
    order: list[int] = []

    async def note(n: int) -> None:
        order.append(n)

    for n in range(30):
        await desk.enqueue("note", b'{"n":%d}' % n)
    await desk.burst(note, concurrency=4)

    assert order == list(range(30))


async def test_a_burst_ends_without_waiting_for_delayed_jobs(desk: Desk) -> None:
    async def note() -> None: ...

    now = await desk.enqueue("note")
    later = await desk.enqueue("note", delay_ms=60_000)
    await desk.burst(note)

    assert (await desk.job(now)).state is State.COMPLETED
    assert (await desk.job(later)).state is State.DELAYED


async def test_a_burst_runs_what_its_jobs_enqueue(desk: Desk) -> None:
    made: list[str] = []
    has_run = asyncio.Event()

    async def parent() -> None:
        made.append(await desk.enqueue("child"))
        await has_run.wait()

    async def child() -> None:
        has_run.set()

    await desk.enqueue("parent")
    await desk.burst(parent, child, **NEVER)

    assert (await desk.job(made[0])).state is State.COMPLETED


async def test_a_burst_over_nothing_ends_at_once(queue: QueueRef) -> None:
    store = Cut()
    await Desk(queue, store).burst(**NEVER)

    assert store.calls.count("claim") == 1


async def test_a_burst_waits_for_long_jobs_without_claiming_all_the_time(queue: QueueRef) -> None:
    store = Cut()
    desk = Desk(queue, store)
    gate = asyncio.Event()

    async def work() -> None:
        await gate.wait()

    job = await desk.enqueue("work")
    worker = desk.worker(work, burst=True, **NEVER)
    async with running(worker) as run:
        await rests(worker)
        await loop_turns()
        claims, is_over = store.calls.count("claim"), run.done()
        gate.set()
        await asyncio.wait_for(run, PATIENCE)

    assert (claims, is_over) == (1, False)
    assert (await desk.job(job)).state is State.COMPLETED


async def test_a_paused_queue_is_left_alone_until_it_is_resumed(desk: Desk) -> None:
    async def note() -> None: ...

    await desk.store.queues.pause_queue(desk.queue, Pause(at=0))
    job = await desk.enqueue("note")
    await desk.burst(note)
    assert (await desk.job(job)).state is State.PENDING

    async with desk.working(note, poll=60):
        await desk.store.queues.pause_queue(desk.queue, None)
        assert (await desk.ended(job)).state is State.COMPLETED


async def test_two_workers_share_a_queue_and_run_each_job_once(desk: Desk) -> None:
    ran: list[int] = []

    async def note(n: int) -> None:
        ran.append(n)
        await asyncio.sleep(0)

    jobs = [await desk.enqueue("note", b'{"n":%d}' % n) for n in range(100)]
    async with desk.working(note, concurrency=3), desk.working(note, concurrency=5):
        for job in jobs:
            await desk.ended(job)

    assert sorted(ran) == list(range(100))


async def test_workers_have_names_of_their_own(desk: Desk) -> None:
    names = {desk.worker().name for _ in range(10)}

    assert len(names) == 10


@pytest.mark.parametrize(
    "options",
    [
        {"concurrency": 0},
        {"concurrency": True},
        {"concurrency": 10_001},
        {"lease": 0.05},
        {"lease": 3601},
        {"lease": float("nan")},
        {"poll": 0},
        {"shutdown_timeout": -1},
        {"tick": 0},
        {"events_kept": -1},
        {"events_age": -1},
        {"name": "a b"},
    ],
)
def test_options_out_of_range_are_refused(desk: Desk, options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"{'worker' if 'name' in options else next(iter(options))}: found"):
        desk.worker(**options)
