"""Who holds a job, for how long, and what happens to a worker that no longer does."""

import asyncio
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pytest

from penstock.core import decide
from penstock.core.errors import StoreUnavailableError
from penstock.core.job import QueueRef
from penstock.core.moves import Beat, Move
from penstock.core.outcomes import Applied, Refused
from penstock.core.states import State
from penstock.stores.memory import MemoryStore
from penstock.tasks.context import JobContext
from tests.worker.kit import Cut, Desk, eventually

LEASE = 0.5


async def test_a_handler_that_blocks_the_loop_for_three_leases_keeps_its_lease_and_runs_once(
    desk: Desk,
) -> None:
    ran: list[str] = []

    async def block() -> None:
        ran.append("block")
        time.sleep(3 * LEASE)  # noqa: ASYNC251 (the point of the test)

    job = await desk.enqueue("block")
    other = Desk(desk.queue, desk.store)

    def rival() -> None:
        asyncio.run(_look_after(other))

    async def _look_after(desk: Desk) -> None:
        async def block() -> None:
            ran.append("rival")

        worker = desk.worker(block, lease=LEASE, tick=0.05)
        threading.Timer(3.5 * LEASE, worker.stop).start()
        await worker.run()

    async with desk.working(block, lease=LEASE):
        thread = threading.Thread(target=rival)
        asyncio.get_running_loop().call_later(0.05, thread.start)
        found = await desk.ended(job)
    thread.join()

    assert ran == ["block"]
    assert (found.state, found.delivery) == (State.COMPLETED, 1)
    assert await desk.moves(job) == [Move.ENQUEUE, Move.CLAIM, Move.COMPLETE]


async def test_jobs_whose_claim_is_answered_while_the_loop_is_blocked_keep_their_lease_too(
    queue: QueueRef,
) -> None:
    class Slow(MemoryStore):
        """Answers claims from a thread, as a store on a disk or a server does."""

        async def claim(self, *args: Any, **kwargs: Any) -> Any:
            claims = await super().claim(*args, **kwargs)
            await asyncio.sleep(0.02)
            return claims

    desk = Desk(queue, Slow())
    ran: list[str] = []

    async def block() -> None:
        ran.append("block")
        await asyncio.sleep(0.1)
        other = await desk.enqueue("quick")
        # The claim loop has a turn to ask, and none to hear the answer.
        await asyncio.sleep(0.01)
        time.sleep(3 * LEASE)  # noqa: ASYNC251 (the point of the test)
        ran.append(other)

    async def quick() -> None:
        ran.append("quick")

    job = await desk.enqueue("block")
    async with desk.working(block, quick, lease=LEASE, tick=0.1):
        await desk.ended(job)
        found = await desk.ended(ran[1])

    assert ran == ["block", found.id, "quick"]
    assert (found.attempts, found.delivery) == (0, 1)


async def test_a_thread_keeps_its_lease_however_long_it_takes(desk: Desk) -> None:
    def work() -> None:
        time.sleep(3 * LEASE)

    job = await desk.enqueue("work")
    async with desk.working(work, lease=LEASE, tick=0.05):
        found = await desk.ended(job)

    assert (found.state, found.delivery, found.attempts) == (State.COMPLETED, 1, 0)


async def test_a_worker_whose_lease_was_taken_stops_the_handler_and_settles_nothing(desk: Desk) -> None:
    stopped = asyncio.Event()
    runs = 0

    async def work() -> str:
        nonlocal runs
        runs += 1
        if runs == 1:
            try:
                await asyncio.sleep(60)
            finally:
                stopped.set()
        return "second"

    job = await desk.enqueue("work")
    async with desk.working(work, lease=3.0):
        first = await desk.reaches(job, State.ACTIVE)
        await _take_away(desk, job)
        # By the refused heartbeat, and well before the worker would fence itself.
        async with asyncio.timeout(2):
            await stopped.wait()
        found = await desk.ended(job)

    assert (found.result, found.attempts, found.delivery) == (b'"second"', 1, 2)
    assert found.fence > first.fence


async def test_a_thread_whose_lease_was_taken_is_told_and_settles_nothing(desk: Desk) -> None:
    told = threading.Event()
    runs = 0

    def work(ctx: JobContext) -> str:
        nonlocal runs
        runs += 1
        if runs == 1:
            while not ctx.is_cancelled:
                time.sleep(0.01)
            told.set()
            return "stale"
        return "second"

    job = await desk.enqueue("work")
    async with desk.working(work, lease=LEASE):
        await desk.reaches(job, State.ACTIVE)
        await _take_away(desk, job)
        found = await desk.ended(job)

    assert told.is_set()
    assert (found.result, found.attempts, found.delivery) == (b'"second"', 1, 2)


async def test_a_settlement_that_comes_after_the_lease_was_taken_changes_nothing(desk: Desk) -> None:
    gate = asyncio.Event()
    runs = 0

    async def work() -> int:
        nonlocal runs
        runs += 1
        if runs == 1:
            await gate.wait()
        return runs

    job = await desk.enqueue("work")
    async with desk.working(work, concurrency=1):
        await desk.reaches(job, State.ACTIVE)
        await _take_away(desk, job)
        gate.set()
        found = await desk.ended(job)

    assert (found.result, found.attempts) == (b"2", 1)
    assert (await desk.moves(job)).count(Move.COMPLETE) == 1


async def test_a_worker_that_cannot_renew_fences_itself_before_the_lease_is_over(queue: QueueRef) -> None:
    store = Cut()
    desk = Desk(queue, store)
    stopped: list[float] = []
    has_stopped = asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            stopped.append(time.monotonic())
            has_stopped.set()

    job = await desk.enqueue("work", max_attempts=1)
    async with desk.working(work, lease=1.0):
        await desk.reaches(job, State.ACTIVE)
        store.lose_before["heartbeat"] = 1_000
        before = time.monotonic()
        store.is_down = True
        async with asyncio.timeout(10):
            await has_stopped.wait()
        store.is_down = False
        # Nothing was settled: the lease runs out and recovery counts the attempt.
        found = await desk.ended(job)

    assert stopped[0] - before <= 1.0
    assert (found.state, found.reason) == (State.DEAD, "LEASE_EXPIRED")
    assert (await desk.moves(job))[-1] is Move.EXPIRE


async def test_a_handler_that_outlived_its_lease_in_a_blocked_loop_settles_nothing(queue: QueueRef) -> None:
    store = Cut()
    desk = Desk(queue, store)

    async def block() -> str:
        store.lose_before["heartbeat"] = 1_000
        time.sleep(1.5 * LEASE)  # noqa: ASYNC251 (the point of the test)
        return "too late"

    job = await desk.enqueue("block", max_attempts=1)
    async with desk.working(block, lease=LEASE):
        found = await desk.ended(job)

    assert (found.state, found.reason, found.result) == (State.DEAD, "LEASE_EXPIRED", None)


async def test_a_worker_whose_keeper_fails_gives_its_jobs_back_and_raises(desk: Desk) -> None:
    class Unsuited(MemoryStore):
        def twin(self) -> MemoryStore:
            raise RuntimeError("no twin")

    desk.store = Unsuited()

    async def work() -> None:
        await asyncio.sleep(60)

    job = await desk.enqueue("work")
    with pytest.raises(RuntimeError, match="no twin"):
        async with asyncio.timeout(10):
            await desk.worker(work).run()

    assert (await desk.job(job)).state is State.PENDING


@pytest.mark.parametrize("call", ["open", "heartbeat"])
@pytest.mark.parametrize("is_failing", [False, True])
async def test_a_worker_stops_at_once_when_a_store_loses_the_cancel_of_its_keeper(
    queue: QueueRef, call: str, is_failing: bool
) -> None:
    reached = asyncio.Event()
    loop = asyncio.get_running_loop()

    class Losing(MemoryStore):
        """Drops a cancel that comes together with an answer."""

        async def open(self) -> None:
            await self._lose("open")

        async def heartbeat(self, *args: Any, **kwargs: Any) -> Any:
            await self._lose("heartbeat")
            return await super().heartbeat(*args, **kwargs)

        async def _lose(self, name: str) -> None:
            if name == call and threading.current_thread().name == keeper:
                loop.call_soon_threadsafe(reached.set)
                with suppress(asyncio.CancelledError):
                    await asyncio.Event().wait()
                if is_failing:
                    raise StoreUnavailableError(f"{name} did not arrive")

    async def wait() -> None:
        await asyncio.sleep(60)

    keeper = "penstock-leases"
    desk = Desk(queue, Losing())
    await desk.enqueue("wait")
    async with desk.working(wait, lease=1.0):
        await asyncio.wait_for(reached.wait(), 20)
        started = time.monotonic()

    assert time.monotonic() - started < 1.5
    for thread in threading.enumerate():
        if thread.name == keeper:
            thread.join(1)
            assert not thread.is_alive()


async def test_one_call_renews_every_lease(queue: QueueRef) -> None:
    class Counting(MemoryStore):
        def __init__(self) -> None:
            super().__init__()
            self.beats: list[int] = []

        async def heartbeat(
            self, queue: QueueRef, beats: Sequence[Beat], lease_ms: int
        ) -> list[Applied | Refused]:
            self.beats.append(len(beats))
            return await super().heartbeat(queue, beats, lease_ms)

    store = Counting()
    desk = Desk(queue, store)
    gate = asyncio.Event()

    async def wait() -> None:
        await gate.wait()

    async def has_beaten() -> bool:
        return 10 in store.beats

    jobs = [await desk.enqueue("wait") for _ in range(10)]
    async with desk.working(wait, lease=LEASE, concurrency=10):
        await eventually(has_beaten)
        gate.set()
        for job in jobs:
            await desk.ended(job)

    assert set(store.beats) <= {0, 10}


async def test_a_dead_workers_jobs_are_recovered_by_another(desk: Desk) -> None:
    async def work() -> str:
        return "done"

    job = await desk.enqueue("work")
    await desk.store.claim(desk.queue, worker="dead", limit=1, lease_ms=30_000)
    async with desk.working(work, poll=60):
        await desk.store.turn(31_000)
        found = await desk.ended(job)

    assert (found.state, found.attempts, found.delivery) == (State.COMPLETED, 1, 2)
    assert Move.EXPIRE in await desk.moves(job)


@pytest.mark.parametrize("options", [{"poll": 0.02}, {"poll": 60, "tick": 0.02}], ids=["claim", "tick"])
async def test_a_clock_that_steps_forward_takes_no_running_job_from_its_own_worker(
    desk: Desk, options: dict[str, float]
) -> None:
    gate = asyncio.Event()

    async def work() -> str:
        await gate.wait()
        return "done"

    job = await desk.enqueue("work")
    async with desk.working(work, **options):
        await desk.reaches(job, State.ACTIVE)
        await desk.store.turn(3_600_000)
        await asyncio.sleep(0.2)
        gate.set()
        found = await desk.ended(job)

    assert (found.state, found.attempts, found.delivery) == (State.COMPLETED, 0, 1)
    assert Move.EXPIRE not in await desk.moves(job)


async def test_a_clock_that_steps_forward_does_not_make_a_worker_claim_all_the_time(queue: QueueRef) -> None:
    store = Cut()
    desk = Desk(queue, store)
    gate = asyncio.Event()

    async def work() -> None:
        await gate.wait()

    job = await desk.enqueue("work")
    async with desk.working(work):
        await desk.reaches(job, State.ACTIVE)
        await desk.store.turn(3_600_000)
        before = store.calls.count("claim")
        await asyncio.sleep(0.5)
        claims = store.calls.count("claim") - before
        gate.set()
        await desk.ended(job)

    assert claims < 5


async def _take_away(desk: Desk, job: str) -> None:
    """Let the lease run out by the store's clock and recover the job before the worker can renew it."""
    await desk.store.turn(3_600_000)
    expired = [lease for lease in await desk.store.expired(desk.queue) if lease.id == job]
    await desk.store.expire(desk.queue, [decide.expire(lease, lambda low, high: high) for lease in expired])
