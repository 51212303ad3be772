"""A store that does not answer, or whose answers are lost: one job, no orphan, the same answer."""

import asyncio
import logging

import pytest

from penstock.core.errors import StoreTimeoutError, StoreUnavailableError, StoreVersionError
from penstock.core.job import QueueRef
from penstock.core.moves import Move
from penstock.core.outcomes import Claims
from penstock.core.states import State
from penstock.stores.claim_limits import CLAIM_LIMITS, ClaimLimits
from penstock.tasks.context import JobContext
from penstock.tasks.signals import Cancel
from penstock.worker.backoff import CAP, StoreBackoff
from tests.kit.intercepted import InterceptedStore, Part
from tests.kit.waiting import PATIENCE, eventually, turns, until
from tests.worker.kit import Cut, Desk, StoppedClock, StoppedDesk


class Slow(InterceptedStore):
    """A store whose answers take too long for claims that bring more than so many jobs."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most
        self.asked: list[int] = []

    async def claim(
        self,
        queue: QueueRef,
        *,
        worker: str,
        limit: int,
        lease_ms: int,
        floor_us: int = 0,
        limits: ClaimLimits = CLAIM_LIMITS,
    ) -> Claims:
        claims = await self.real.moves.claim(queue, worker=worker, limit=limit, lease_ms=lease_ms)
        self.asked.append(limit)
        if len(claims.jobs) > self.most:
            raise StoreTimeoutError("no whole reply")
        return claims


@pytest.fixture
def store() -> Cut:
    return Cut()


@pytest.fixture
def desk(queue: QueueRef, store: Cut) -> Desk:
    return Desk(queue, store)


async def test_a_job_whose_claim_was_answered_into_the_void_is_given_back_and_runs_once(
    desk: Desk, store: Cut
) -> None:
    ran: list[str] = []

    async def work() -> None:
        ran.append("once")

    store.lose_after["claim"] = 1
    job = await desk.enqueue("work")
    async with desk.working(work):
        found = await desk.ended(job)

    assert ran == ["once"]
    assert (found.state, found.attempts, found.delivery) == (State.COMPLETED, 0, 2)
    assert await desk.moves(job) == [Move.ENQUEUE, Move.CLAIM, Move.RELEASE, Move.CLAIM, Move.COMPLETE]


async def test_a_worker_claims_fewer_at_once_when_answers_take_too_long(queue: QueueRef) -> None:
    """As few as come through, down to one; then slowly more, and all jobs are done."""
    slow = Slow(most=3)
    desk = Desk(queue, slow)

    async def work() -> None: ...

    jobs = [await desk.enqueue("work") for _ in range(12)]
    await desk.burst(work, concurrency=16)

    assert slow.asked[:6] == [16, 8, 4, 2, 3, 4]
    assert slow.asked[6:8] == [2, 3]
    assert {(await desk.job(job)).state for job in jobs} == {State.COMPLETED}


async def test_giving_back_lost_claims_leaves_running_jobs_alone(desk: Desk, store: Cut) -> None:
    gate = asyncio.Event()

    async def hold() -> None:
        await gate.wait()

    async def quick() -> None: ...

    held = await desk.enqueue("hold")
    async with desk.working(hold, quick):
        await desk.reaches(held, State.ACTIVE)
        store.lose_after["claim"] = 2
        other = await desk.ended(await desk.enqueue("quick"))
        gate.set()
        found = await desk.ended(held)

    assert (found.delivery, other.attempts) == (1, 0)
    assert Move.RELEASE not in await desk.moves(held)


@pytest.mark.parametrize("lost", ["lose_before", "lose_after"])
async def test_a_settlement_without_an_answer_is_repeated_and_gets_the_same_answer(
    desk: Desk, store: Cut, lost: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> int:
        return 7

    getattr(store, lost)["settle"] = 3
    job = await desk.enqueue("work")
    await desk.burst(work)

    found = await desk.job(job)
    assert (found.state, found.result, found.delivery) == (State.COMPLETED, b"7", 1)
    assert (await desk.moves(job)).count(Move.COMPLETE) == 1
    assert "refused" not in caplog.text


@pytest.mark.parametrize("lost", ["lose_before", "lose_after"])
async def test_a_handlers_own_cancel_is_repeated_too(desk: Desk, store: Cut, lost: str) -> None:
    async def stop() -> None:
        raise Cancel

    getattr(store, lost)["cancel"] = 2
    getattr(store, lost)["settle"] = 1
    job = await desk.enqueue("stop")
    await desk.burst(stop)

    assert (await desk.job(job)).state is State.CANCELLED


async def test_a_handlers_own_cancel_is_not_sent_when_the_lease_may_be_over(queue: QueueRef) -> None:
    """It would reach another execution of the job. This one comes back, and is cancelled then."""
    store = Cut(clock_us=StoppedClock.us)
    desk = StoppedDesk(queue, store)

    async def stop() -> None:
        raise Cancel

    store.lose_before |= {"cancel": 1_000_000, "heartbeat": 1_000_000}
    job = await desk.enqueue("stop")
    async with desk.working(stop, lease=30.0):
        await until(lambda: "cancel" in store.calls)
        desk.stopped.turn(31.0)
        store.lose_before.clear()
        found = await desk.ended(job)

    assert (found.state, found.delivery) == (State.CANCELLED, 2)
    assert await desk.moves(job) == [
        Move.ENQUEUE,
        Move.CLAIM,
        Move.RELEASE,
        Move.CLAIM,
        Move.CANCEL,
        Move.RELEASE,
    ]


async def test_an_outage_shorter_than_the_lease_disturbs_nothing(desk: Desk, store: Cut) -> None:
    go_on = asyncio.Event()

    async def work(n: int) -> int:
        await go_on.wait()
        return n

    jobs = [await desk.enqueue("work", b'{"n":%d}' % n) for n in range(30)]
    async with desk.working(work, concurrency=10, lease=3.0, tick=0.1):
        await desk.reaches(jobs[0], State.ACTIVE)
        store.is_down = True
        go_on.set()
        failed = len(store.calls)
        await until(lambda: len(store.calls) >= failed + 3)
        store.is_down = False
        ended = [await desk.ended(job) for job in jobs]

    assert {(job.state, job.attempts, job.delivery) for job in ended} == {(State.COMPLETED, 0, 1)}


async def test_nothing_is_claimed_while_settlements_are_not_answered(desk: Desk, store: Cut) -> None:
    async def work() -> None: ...

    store.lose_before["settle"] = 4
    jobs = [await desk.enqueue("work") for _ in range(6)]
    most = 0
    async with desk.working(work, concurrency=2):
        while store.lose_before["settle"]:
            most = max(most, len(await store.real.reads.leases(desk.queue)))
            await asyncio.sleep(0)
        for job in jobs:
            await desk.ended(job)

    assert most == 2


async def test_a_store_that_is_down_is_not_asked_all_the_time(desk: Desk, store: Cut) -> None:
    store.is_down = True
    async with desk.working():
        await until(lambda: len(store.calls) >= 5)
        before = len(store.calls)
        await turns(10_000)

        assert len(store.calls) - before < 50


async def test_a_worker_stops_in_bounded_time_while_the_store_is_down(
    desk: Desk, store: Cut, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.worker.worker.SETTLE_WAIT", 0.2)

    async def work() -> None: ...

    job = await desk.enqueue("work")
    store.lose_before["settle"] = 10_000
    worker = desk.worker(work)
    run = asyncio.create_task(worker.run())
    await desk.reaches(job, State.ACTIVE)
    store.is_down = True
    worker.stop()
    async with asyncio.timeout(PATIENCE):
        await run


@pytest.mark.parametrize("hung", ["claim", "settle", "progress"])
async def test_a_call_that_never_ends_does_not_hold_a_stopped_worker(
    desk: Desk, store: Cut, hung: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.worker.worker.CLAIM_WAIT", 0.1)
    monkeypatch.setattr("penstock.worker.worker.SETTLE_WAIT", 0.1)
    called = asyncio.Event()

    async def hang(*args: object, **kwargs: object) -> None:
        called.set()
        await asyncio.sleep(3600)

    async def work(ctx: JobContext) -> None:
        ctx.progress(1)

    monkeypatch.setattr(store.moves, hung, hang)
    await desk.enqueue("work")
    worker = desk.worker(work)
    run = asyncio.create_task(worker.run())
    await called.wait()
    worker.stop()
    async with asyncio.timeout(PATIENCE):
        await run


async def test_progress_that_hangs_does_not_hold_the_settlement_up(
    desk: Desk, store: Cut, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hang(*args: object, **kwargs: object) -> None:
        await asyncio.sleep(3600)

    async def work(ctx: JobContext) -> None:
        ctx.progress(1)

    monkeypatch.setattr(store.moves, "progress", hang)
    job = await desk.enqueue("work")
    async with desk.working(work, lease=0.5):
        assert (await desk.ended(job)).state is State.COMPLETED


async def test_a_settlement_is_given_up_once_the_lease_is_surely_gone(
    desk: Desk, store: Cut, caplog: pytest.LogCaptureFixture
) -> None:
    runs = 0

    async def work() -> int:
        nonlocal runs
        runs += 1
        return runs

    async def is_given_up() -> bool:
        return "the lease has ended" in caplog.text

    store.lose_before["settle"] = 10_000
    store.lose_before["heartbeat"] = 10_000
    job = await desk.enqueue("work", max_attempts=2)
    async with desk.working(work, lease=0.3, tick=60.0):
        await eventually(is_given_up)
        store.lose_before.clear()
        found = await desk.ended(job)

    assert (found.state, found.attempts) == (State.COMPLETED, 1)


async def test_a_store_that_no_waiting_mends_ends_the_run(desk: Desk, store: Cut) -> None:
    async def claim(*args: object, **kwargs: object) -> None:
        raise StoreVersionError("written by a newer Penstock")

    store.moves = Part(store.moves, claim=claim)
    with pytest.raises(StoreVersionError):
        await desk.worker().run()


def test_waits_grow_with_full_jitter_up_to_a_cap(store: Cut) -> None:
    outage = StoreBackoff(logging.getLogger("test"), "calling", {})
    error = StoreUnavailableError("down")
    waits = [outage.failed(error) for _ in range(200)]

    assert all(0 <= wait <= CAP for wait in waits)
    assert waits[0] <= 0.1
    assert max(waits[10:]) > CAP / 2
    assert len(set(waits)) == len(waits)


async def test_each_reason_of_an_outage_is_told_once_and_no_more_than_a_handful(
    caplog: pytest.LogCaptureFixture,
) -> None:
    outage = StoreBackoff(logging.getLogger("penstock.worker"), "claiming", {})
    for said in ("cut off", "locked out", "cut off", *(f"at {number}" for number in range(20))):
        outage.failed(StoreUnavailableError(said))
    first = [record.getMessage() for record in caplog.records]
    outage.over()
    outage.failed(StoreUnavailableError("cut off"))

    assert first[:2] == [f"claiming failed, will repeat: {said}" for said in ("cut off", "locked out")]
    assert len(first) == 5
    assert caplog.text.count("cut off") == 2
