"""When jobs are claimed, and how many."""

import asyncio
import time
from typing import Any

import pytest

from penstock.core.job import QueueRef
from penstock.core.outcomes import Claims
from penstock.core.states import State
from penstock.stores.memory import MemoryStore
from penstock.stores.values import Pause
from tests.worker.kit import Desk


async def test_an_enqueue_wakes_an_idle_worker_at_once(desk: Desk) -> None:
    started: list[float] = []

    async def note() -> None:
        started.append(time.monotonic())

    async with desk.working(note, poll=60):
        await desk.ended(await desk.enqueue("note"))
        waits = []
        for _ in range(20):
            before = time.monotonic()
            await desk.ended(await desk.enqueue("note"))
            waits.append(started[-1] - before)

    assert sorted(waits)[10] < 0.1


async def test_a_delayed_job_starts_when_it_is_due_and_not_at_the_poll(desk: Desk) -> None:
    async def note() -> None: ...

    async with desk.working(note, poll=60):
        before = time.monotonic()
        await desk.ended(await desk.enqueue("note", delay_ms=300))
        took = time.monotonic() - before

    assert 0.25 < took < 2


async def test_turning_the_clock_makes_delayed_jobs_due(desk: Desk) -> None:
    async def note() -> None: ...

    job = await desk.enqueue("note", delay_ms=3_600_000)
    async with desk.working(note, poll=60):
        await desk.store.turn(3_600_000)

        assert (await desk.ended(job)).state is State.COMPLETED


async def test_never_more_than_the_slots_run_and_what_is_active_runs(desk: Desk) -> None:
    running = most = 0
    leases: list[tuple[int, int]] = []

    async def work() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.001)
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

    def work() -> None:
        nonlocal running
        running += 1
        time.sleep(0.005)
        seen.append(running)
        running -= 1

    for _ in range(40):
        await desk.enqueue("work")
    await desk.burst(work, concurrency=3)

    assert len(seen) == 40
    assert max(seen) <= 3


async def test_slots_that_free_up_together_are_claimed_together(queue: QueueRef) -> None:
    class Counting(MemoryStore):
        claims = 0
        settles = 0

        async def claim(self, *args: Any, **kwargs: Any) -> Claims:
            self.claims += 1
            return await super().claim(*args, **kwargs)

        async def settle(self, *args: Any, **kwargs: Any) -> Any:
            self.settles += 1
            return await super().settle(*args, **kwargs)

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

    async def parent() -> None:
        made.append(await desk.enqueue("child"))
        await asyncio.sleep(0.02)

    async def child() -> None: ...

    await desk.enqueue("parent")
    await desk.burst(parent, child, poll=60)

    assert (await desk.job(made[0])).state is State.COMPLETED


async def test_a_burst_over_nothing_ends_at_once(desk: Desk) -> None:
    before = time.monotonic()
    await desk.burst(poll=60)

    assert time.monotonic() - before < 5


async def test_a_burst_waits_for_long_jobs_without_claiming_all_the_time(desk: Desk) -> None:
    async def work() -> None:
        await asyncio.sleep(0.3)

    job = await desk.enqueue("work")
    before = time.monotonic()
    await desk.burst(work, poll=60)

    assert 0.3 <= time.monotonic() - before < 3
    assert (await desk.job(job)).state is State.COMPLETED


async def test_a_paused_queue_is_left_alone_until_it_is_resumed(desk: Desk) -> None:
    async def note() -> None: ...

    await desk.store.pause(desk.queue, Pause(at=0))
    job = await desk.enqueue("note")
    await desk.burst(note)
    assert (await desk.job(job)).state is State.PENDING

    async with desk.working(note, poll=60):
        await desk.store.pause(desk.queue, None)
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
