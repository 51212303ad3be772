"""Who holds a job, for how long, and what happens to a worker that no longer does."""

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from penstock.core import decide
from penstock.core.errors import StoreUnavailableError
from penstock.core.job import QueueRef
from penstock.core.moves import Beat, Move
from penstock.core.outcomes import Applied, Claims, Refused
from penstock.core.states import State
from penstock.stores.memory import MemoryStore
from penstock.tasks.context import JobContext
from penstock.worker.claim import HELD_REST
from penstock.worker.queue_leases import margin_of
from penstock.worker.renewer import LeaseRenewer
from tests.kit.intercepted import InterceptedStore
from tests.kit.waiting import PATIENCE, block_until, eventually, until
from tests.worker.kit import Cut, Desk, StoppedClock, StoppedDesk, blocking, rests

LEASE = 0.3
UNRENEWED = 3_600.0
"""A lease that no test lives long enough to see renewed: a renewal after a step forward would be refused."""


@pytest.fixture
def desk(queue: QueueRef) -> StoppedDesk:
    """A queue in a memory store; its leases run out when a test turns the clock."""
    return StoppedDesk(queue)


async def test_a_handler_that_blocks_the_loop_for_three_leases_keeps_its_lease_and_runs_once(
    desk: StoppedDesk,
) -> None:
    ran: list[str] = []

    async def block() -> None:
        ran.append("block")
        blocking(rival())

    async def rival() -> None:
        async def block() -> None:
            ran.append("rival")

        async with desk.working(block, lease=LEASE, tick=0.05):
            await desk.pass_leases(LEASE)

    job = await desk.enqueue("block")
    async with desk.working(block, lease=LEASE):
        found = await desk.ended(job)

    assert ran == ["block"]
    assert (found.state, found.delivery) == (State.COMPLETED, 1)
    assert await desk.moves(job) == [Move.ENQUEUE, Move.CLAIM, Move.COMPLETE]


async def test_jobs_whose_claim_is_answered_while_the_loop_is_blocked_keep_their_lease_too(
    queue: QueueRef,
) -> None:
    class Late(InterceptedStore):
        """Claims at once, and answers when it is let."""

        answers = asyncio.Event()

        async def claim(self, *args: Any, **kwargs: Any) -> Any:
            claims = await self.real.moves.claim(*args, **kwargs)
            await self.answers.wait()
            return claims

    store = Late(clock_us=StoppedClock.us)
    store.answers.set()
    desk = StoppedDesk(queue, store)
    ran: list[str] = []

    async def block() -> None:
        ran.append("block")
        store.answers.clear()
        other = await desk.enqueue("quick")
        await desk.reaches(other, State.ACTIVE)
        # The claim loop has asked, and has no turn to hear the answer.
        blocking(desk.pass_leases(LEASE))
        store.answers.set()
        ran.append(other)

    async def quick() -> None:
        ran.append("quick")

    job = await desk.enqueue("block")
    async with desk.working(block, quick, lease=LEASE, tick=0.1):
        await desk.ended(job)
        found = await desk.ended(ran[1])

    assert ran == ["block", found.id, "quick"]
    assert (found.attempts, found.delivery) == (0, 1)


async def test_a_thread_keeps_its_lease_however_long_it_takes(desk: StoppedDesk) -> None:
    def work() -> None:
        asyncio.run(desk.pass_leases(LEASE))

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
    async with desk.working(work, lease=LEASE):
        first = await desk.reaches(job, State.ACTIVE)
        await _take_away(desk, job)
        # By the refused heartbeat: by its own clock, which stands still, the worker has its lease.
        async with asyncio.timeout(PATIENCE):
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
            block_until(lambda: ctx.is_cancelled)
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
    store = Cut(clock_us=StoppedClock.us)
    desk = StoppedDesk(queue, store)
    expired: list[int] = []
    has_stopped = asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            expired.append(len(await store.real.reads.expired(queue)))
            has_stopped.set()

    job = await desk.enqueue("work", max_attempts=1)
    async with desk.working(work, lease=LEASE):
        await desk.reaches(job, State.ACTIVE)
        store.is_down = True
        await desk.turn(LEASE - margin_of(LEASE) / 2)
        async with asyncio.timeout(PATIENCE):
            await has_stopped.wait()
        store.is_down = False
        # Nothing was settled: the lease runs out and recovery counts the attempt.
        await desk.turn(LEASE)
        found = await desk.ended(job)

    assert expired == [0]
    assert (found.state, found.reason) == (State.DEAD, "LEASE_EXPIRED")
    assert (await desk.moves(job))[-1] is Move.EXPIRE


async def test_a_worker_counts_on_a_lease_that_is_not_nearly_over(queue: QueueRef) -> None:
    store = Cut(clock_us=StoppedClock.us)
    desk = StoppedDesk(queue, store)
    gate = asyncio.Event()

    async def work() -> str:
        await gate.wait()
        return "done"

    job = await desk.enqueue("work", max_attempts=1)
    async with desk.working(work, lease=LEASE):
        await desk.reaches(job, State.ACTIVE)
        store.lose_before["heartbeat"] = 1_000
        await desk.turn(LEASE - 2 * margin_of(LEASE))
        lost = store.calls.count("heartbeat")
        # Before each heartbeat the keeper looks which leases are over.
        await until(lambda: store.calls.count("heartbeat") >= lost + 3)
        gate.set()
        found = await desk.ended(job)

    assert (found.state, found.delivery) == (State.COMPLETED, 1)


async def test_a_handler_that_outlived_its_lease_in_a_blocked_loop_settles_nothing(
    queue: QueueRef, caplog: pytest.LogCaptureFixture
) -> None:
    store = Cut(clock_us=StoppedClock.us)
    desk = StoppedDesk(queue, store)

    async def block() -> str:
        store.lose_before["heartbeat"] = 1_000
        blocking(desk.turn(1.5 * LEASE))
        block_until(lambda: "lease not renewed in time" in caplog.text)
        return "too late"

    job = await desk.enqueue("block", max_attempts=1)
    async with desk.working(block, lease=LEASE):
        found = await desk.ended(job)

    assert (found.state, found.reason, found.result) == (State.DEAD, "LEASE_EXPIRED", None)


async def test_a_worker_whose_keeper_fails_gives_its_jobs_back_and_raises(desk: StoppedDesk) -> None:
    class Unsuited(MemoryStore):
        def clone(self) -> MemoryStore:
            raise RuntimeError("no twin")

    desk.store = Unsuited()

    async def work() -> None:
        await asyncio.sleep(60)

    job = await desk.enqueue("work")
    with pytest.raises(RuntimeError, match="no twin"):
        async with asyncio.timeout(PATIENCE):
            await desk.worker(work).run()

    assert (await desk.job(job)).state is State.PENDING


@pytest.mark.parametrize("call", ["open", "heartbeat"])
@pytest.mark.parametrize("is_failing", [False, True])
async def test_a_worker_stops_at_once_when_a_store_loses_the_cancel_of_its_keeper(
    queue: QueueRef, call: str, is_failing: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A worker that waited for the thread to end by itself would be waiting still.
    monkeypatch.setattr("penstock.worker.queue_leases.JOIN_TIMEOUT", 3600.0)
    monkeypatch.setattr("penstock.worker.renewer.JOIN_TIMEOUT", 3600.0)
    reached = asyncio.Event()
    loop = asyncio.get_running_loop()

    class Losing(InterceptedStore):
        """Drops a cancel that comes together with an answer."""

        async def open(self) -> None:
            await self._lose("open")

        async def heartbeat(self, *args: Any, **kwargs: Any) -> Any:
            await self._lose("heartbeat")
            return await self.real.moves.heartbeat(*args, **kwargs)

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
    desk = StoppedDesk(queue, Losing(clock_us=StoppedClock.us))
    await desk.enqueue("wait")
    async with desk.working(wait, lease=LEASE):
        await asyncio.wait_for(reached.wait(), PATIENCE)

    for thread in threading.enumerate():
        if thread.name == keeper:
            thread.join(PATIENCE)
            assert not thread.is_alive()


async def test_one_call_renews_every_lease(queue: QueueRef) -> None:
    class Counting(InterceptedStore):
        def __init__(self) -> None:
            super().__init__(clock_us=StoppedClock.us)
            self.beats: list[int] = []

        async def heartbeat(
            self, queue: QueueRef, beats: Sequence[Beat], lease_ms: int
        ) -> list[Applied | Refused]:
            self.beats.append(len(beats))
            return await self.real.moves.heartbeat(queue, beats, lease_ms)

    store = Counting()
    desk = StoppedDesk(queue, store)
    gate = asyncio.Event()

    async def wait() -> None:
        await gate.wait()

    jobs = [await desk.enqueue("wait") for _ in range(10)]
    async with desk.working(wait, lease=LEASE, concurrency=10):
        await until(lambda: 10 in store.beats)
        gate.set()
        for job in jobs:
            await desk.ended(job)

    assert set(store.beats) <= {0, 10}


async def test_a_dead_workers_jobs_are_recovered_by_another(desk: Desk) -> None:
    async def work() -> str:
        return "done"

    job = await desk.enqueue("work")
    await desk.store.moves.claim(desk.queue, worker="dead", limit=1, lease_ms=30_000)
    async with desk.working(work, poll=60):
        await desk.store.clock.advance_clock(31_000)
        found = await desk.ended(job)

    assert (found.state, found.attempts, found.delivery) == (State.COMPLETED, 1, 2)
    assert Move.EXPIRE in await desk.moves(job)


class Looked(InterceptedStore):
    """Counts the reads that showed expired leases, and notes how long the subscription is waited for."""

    def __init__(self) -> None:
        super().__init__(clock_us=StoppedClock.us)
        self.looks = 0
        self.rests: list[float] = []

    async def claim(self, *args: Any, **kwargs: Any) -> Claims:
        claims = await self.real.moves.claim(*args, **kwargs)
        self.looks += bool(claims.expired)
        return claims

    async def expired(self, *args: Any, **kwargs: Any) -> Any:
        leases = await self.real.reads.expired(*args, **kwargs)
        self.looks += bool(leases)
        return leases

    @asynccontextmanager
    async def subscribe(self, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        async with self.real.notifier.subscribe(*args, **kwargs) as subscription:
            yield SimpleNamespace(wait=partial(self._noted, subscription))

    async def _noted(self, subscription: Any, seconds: float) -> bool:
        self.rests.append(seconds)
        return bool(await subscription.wait(seconds))


@pytest.mark.parametrize("options", [{"poll": 0.02}, {"poll": 60, "tick": 0.02}], ids=["claim", "tick"])
async def test_a_clock_that_steps_forward_takes_no_running_job_from_its_own_worker(
    queue: QueueRef, options: dict[str, float]
) -> None:
    store = Looked()
    desk = StoppedDesk(queue, store)
    gate = asyncio.Event()

    async def work() -> str:
        await gate.wait()
        return "done"

    job = await desk.enqueue("work")
    async with desk.working(work, lease=UNRENEWED, **options):
        await desk.reaches(job, State.ACTIVE)
        await store.clock.advance_clock(2 * 3_600_000)
        await until(lambda: store.looks >= 3)
        gate.set()
        found = await desk.ended(job)

    assert (found.state, found.attempts, found.delivery) == (State.COMPLETED, 0, 1)
    assert Move.EXPIRE not in await desk.moves(job)


async def test_a_lease_counts_as_held_before_the_thread_that_renews_it_has_begun(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On a busy machine the thread may begin late: its own worker must not recover the job meanwhile."""
    renewer = LeaseRenewer(MemoryStore())
    keeper: Any = Mock()
    keeper.holds = lambda token: token == "mine"
    async with renewer.held():
        thread: Any = renewer._thread
        with monkeypatch.context() as patch:
            patch.setattr(thread, "call", lambda *_: None)
            renewer.start(keeper)

        assert renewer.holds("mine")
        assert not renewer.holds("another's")


async def test_a_clock_that_steps_forward_does_not_make_a_worker_claim_all_the_time(queue: QueueRef) -> None:
    store = Looked()
    desk = StoppedDesk(queue, store)
    gate = asyncio.Event()

    async def work() -> None:
        await gate.wait()

    job = await desk.enqueue("work")
    async with desk.working(work, lease=UNRENEWED) as worker:
        await desk.reaches(job, State.ACTIVE)
        await rests(worker)
        before = len(store.rests)
        await store.clock.advance_clock(2 * 3_600_000)
        await until(lambda: len(store.rests) >= before + 2)
        gate.set()
        await desk.ended(job)

    assert min(store.rests[before:]) >= HELD_REST


async def _take_away(desk: Desk, job: str) -> None:
    """Let the lease run out by the store's clock and recover the job before the worker can renew it."""

    async def is_taken() -> bool:
        await desk.store.clock.advance_clock(3_600_000)
        expired = [lease for lease in await desk.store.reads.expired(desk.queue) if lease.id == job]
        expiries = [decide.expire(lease, lambda low, high: high) for lease in expired]
        answers = await desk.store.moves.expire(desk.queue, expiries)
        return any(isinstance(answer, Applied) for answer in answers)

    await eventually(is_taken)
