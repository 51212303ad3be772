"""Timeouts, cancels and shutdown: how handlers are stopped, and what becomes of their jobs."""

import asyncio
import threading
import time
from contextlib import suppress

import pytest

from penstock.core.errors import StuckHandlerError
from penstock.core.job import QueueRef
from penstock.core.moves import Move
from penstock.core.retry import Backoff
from penstock.core.states import State
from penstock.tasks.context import JobContext
from penstock.worker import execute
from tests.kit.clock import turned_clock
from tests.kit.waiting import PATIENCE, block_until, eventually, turns
from tests.worker.kit import Desk, running


async def test_an_async_handler_is_cancelled_at_its_timeout(desk: Desk) -> None:
    async def slow() -> None:
        await asyncio.sleep(60)

    job = await desk.enqueue("slow", max_attempts=2, timeout_ms=100)
    await desk.burst(slow)

    found = await desk.job(job)
    assert (found.state, found.attempts, found.reason) == (State.DEAD, 2, "TIMEOUT")
    assert found.error == "TimeoutError: the execution took longer than 0.1 s"


async def test_a_handler_that_returns_after_its_timeout_has_still_timed_out(desk: Desk) -> None:
    async def stubborn() -> str:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            return "partly"
        return "whole"

    job = await desk.enqueue("stubborn", max_attempts=1, timeout_ms=50)
    await desk.burst(stubborn)

    found = await desk.job(job)
    assert (found.state, found.reason, found.result) == (State.DEAD, "TIMEOUT", None)


async def test_a_handler_that_blocks_the_loop_past_its_timeout_and_returns_has_completed(desk: Desk) -> None:
    def blocks() -> None:
        # real time: the timeout of an execution is measured by the event loop that is blocked here
        time.sleep(0.3)

    async def block() -> str:
        blocks()
        return "done"

    async def block_and_wait() -> None:
        blocks()
        await asyncio.sleep(60)

    done = await desk.enqueue("block", timeout_ms=50)
    late = await desk.enqueue("block_and_wait", timeout_ms=50, max_attempts=1)
    await desk.burst(block, block_and_wait, concurrency=1)

    assert (await desk.job(done)).state is State.COMPLETED
    assert (await desk.job(late)).reason == "TIMEOUT"


async def test_a_handler_that_swallows_its_cancel_loses_its_lease_and_keeps_its_slot(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(execute, "SWALLOW_GRACE", 0.1)
    gate = asyncio.Event()
    ran: list[str] = []

    async def deaf() -> None:
        while not gate.is_set():
            try:
                await gate.wait()
            except asyncio.CancelledError:
                ran.append("swallowed")

    async def other() -> None:
        ran.append("other")

    job = await desk.enqueue("deaf", timeout_ms=50, backoff=Backoff.fixed(600))
    async with desk.working(deaf, other, concurrency=1):
        await desk.reaches(job, State.DELAYED)
        next_job = await desk.enqueue("other")
        await turns()
        assert ran == ["swallowed"]
        gate.set()
        await desk.ended(next_job)

    found = await desk.job(job)
    assert ran == ["swallowed", "other"]
    assert (found.state, found.attempts, found.reason) == (State.DELAYED, 1, "TIMEOUT")


async def test_a_thread_past_its_timeout_keeps_its_lease_and_its_slot(desk: Desk) -> None:
    """So that no retry runs beside it. What it brings when it ends counts."""
    gate, told = threading.Event(), threading.Event()
    ran: list[str] = []

    def slow(ctx: JobContext) -> str:
        block_until(lambda: ctx.is_cancelled)
        told.set()
        gate.wait(20)
        ran.append("slow")
        return "late"

    def other() -> None:
        ran.append("other")

    job = await desk.enqueue("slow", timeout_ms=100, max_attempts=1)
    async with desk.working(slow, other, concurrency=1, lease=0.5, stuck_after=60):
        await asyncio.to_thread(told.wait, 20)
        next_job = await desk.enqueue("other")
        # Several leases later it still has the one that it began with.
        (held,) = await desk.store.reads.leases(desk.queue)
        await eventually(lambda: _is_later(desk, held.deadline + 1_000))
        waiting = await desk.job(job)
        assert ran == []
        gate.set()
        await desk.ended(next_job)

    found = await desk.job(job)
    assert (waiting.state, waiting.token) == (State.ACTIVE, held.token)
    assert ran == ["slow", "other"]
    assert (found.state, found.result, found.delivery) == (State.COMPLETED, b'"late"', 1)


async def _is_later(desk: Desk, deadline: int) -> bool:
    leases = await desk.store.reads.leases(desk.queue)
    return all(lease.deadline > deadline for lease in leases)


@pytest.mark.parametrize("how", ["raises", "gives up when told"])
def test_a_thread_that_ends_in_vain_after_its_timeout_is_tried_again(how: str) -> None:
    async def main() -> None:
        desk = Desk(QueueRef("default", "q"))

        def slow(ctx: JobContext) -> None:
            block_until(lambda: ctx.is_cancelled)
            if how == "raises":
                raise ValueError("too late")

        job = await desk.enqueue("slow", timeout_ms=100, backoff=Backoff.fixed(600))
        async with desk.working(slow, concurrency=1, stuck_after=60):
            found = await desk.reaches(job, State.DELAYED)
        assert (found.attempts, found.reason) == (1, "TIMEOUT")

    asyncio.run(main())


async def test_a_thread_that_never_ends_ends_its_worker(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    """Once the rest has finished; the job is not given back, its lease runs out."""
    gate, begun, finish = threading.Event(), threading.Event(), threading.Event()

    def stuck() -> None:
        gate.wait(60)

    def rest() -> str:
        begun.set()
        finish.wait(20)
        return "done"

    job = await desk.enqueue("stuck", timeout_ms=100)
    other = await desk.enqueue("rest")
    worker = desk.worker(stuck, rest, concurrency=2, stuck_after=0.1, shutdown_timeout=60)
    run = asyncio.create_task(worker.run())
    await eventually(lambda: _is_told(caplog))
    late = await desk.enqueue("rest")
    finish.set()
    with pytest.raises(StuckHandlerError, match="executor='process'"):
        await asyncio.wait_for(run, 20)
    gate.set()

    assert (await desk.job(other)).state is State.COMPLETED
    assert (await desk.job(late)).state is State.PENDING
    assert ((await desk.job(job)).state, await desk.moves(job)) == (
        State.ACTIVE,
        [Move.ENQUEUE, Move.CLAIM],
    )


async def _is_told(caplog: pytest.LogCaptureFixture) -> bool:
    return "this worker stops claiming and ends" in caplog.text


async def test_slots_held_by_handlers_past_their_timeout_are_told_once_when_none_is_free(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    gate = threading.Event()

    def stuck() -> None:
        gate.wait(20)

    def told() -> list[str]:
        return [each.getMessage() for each in caplog.records if "past their timeout" in each.msg]

    async def is_told() -> bool:
        return bool(told())

    async with desk.working(stuck, concurrency=2, stuck_after=60):
        await desk.enqueue("stuck", timeout_ms=50)
        await desk.enqueue("stuck", timeout_ms=50)
        await eventually(is_told)
        gate.set()

    assert told() == ["no slot is free: 1 of 2 are occupied by handlers past their timeout"]


async def test_shutdown_counts_only_the_jobs_it_gives_back(
    desk: Desk, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.worker.worker.STOP_GRACE", 0.1)
    monkeypatch.setattr(execute, "SWALLOW_GRACE", 0.05)
    gate, is_over = threading.Event(), asyncio.Event()

    def stuck() -> None:
        gate.wait(20)

    async def swallow() -> None:
        while not is_over.is_set():
            with suppress(asyncio.CancelledError):
                await is_over.wait()

    late = await desk.enqueue("swallow", timeout_ms=50, backoff=Backoff.fixed(600))
    held = await desk.enqueue("stuck")
    worker = desk.worker(stuck, swallow, shutdown_timeout=0)
    async with running(worker) as run:
        await desk.reaches(held, State.ACTIVE)
        await desk.reaches(late, State.DELAYED)
        worker.stop()
        await run
    gate.set()
    is_over.set()

    assert "2 handlers did not stop: releasing 1 jobs" in caplog.text
    assert (await desk.job(held)).state is State.PENDING


async def test_a_job_that_ends_in_time_is_not_disturbed_by_its_timeout(desk: Desk) -> None:
    async def quick() -> None:
        await asyncio.sleep(0)

    jobs = [await desk.enqueue("quick", timeout_ms=60_000, max_attempts=1) for _ in range(20)]
    with turned_clock() as turn:
        async with desk.working(quick):
            for job in jobs:
                await desk.ended(job)
            turn(61)
            await turns()

    assert {(await desk.job(job)).state for job in jobs} == {State.COMPLETED}


async def test_a_running_async_job_is_cancelled_at_the_next_heartbeat(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "penstock.worker")

    async def slow() -> None:
        await asyncio.sleep(60)

    job = await desk.enqueue("slow")
    async with desk.working(slow, lease=0.5):
        await desk.reaches(job, State.ACTIVE)
        await desk.store.moves.cancel(desk.queue, [job])
        found = await desk.ended(job)

    assert (found.state, found.attempts) == (State.CANCELLED, 0)
    assert (await desk.moves(job))[-2:] == [Move.CANCEL, Move.RELEASE]
    about_job = [record.msg for record in caplog.records if getattr(record, "job", None) == job]
    assert about_job == ["cancelled"]


async def test_a_handler_that_finishes_in_spite_of_a_cancel_completes(desk: Desk) -> None:
    async def stubborn() -> str:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            await asyncio.sleep(0)
        return "done"

    job = await desk.enqueue("stubborn")
    async with desk.working(stubborn, lease=0.5):
        await desk.reaches(job, State.ACTIVE)
        await desk.store.moves.cancel(desk.queue, [job])
        found = await desk.ended(job)

    assert (found.state, found.result) == (State.COMPLETED, b'"done"')


@pytest.mark.parametrize(
    ("result", "state"), [(None, State.CANCELLED), ("done", State.COMPLETED)], ids=["nothing", "a result"]
)
async def test_a_thread_sees_the_cancel_and_ends_as_it_decides(
    desk: Desk, result: str | None, state: State
) -> None:
    def work(ctx: JobContext) -> str:
        block_until(lambda: ctx.is_cancelled)
        return result  # type: ignore[return-value]

    job = await desk.enqueue("work")
    async with desk.working(work, lease=0.5):
        await desk.reaches(job, State.ACTIVE)
        await desk.store.moves.cancel(desk.queue, [job])
        found = await desk.ended(job)

    assert found.state is state


async def test_a_thread_that_raises_after_a_cancel_is_cancelled(desk: Desk) -> None:
    def work(ctx: JobContext) -> None:
        block_until(lambda: ctx.is_cancelled)
        raise RuntimeError("stopped")

    job = await desk.enqueue("work")
    async with desk.working(work, lease=0.5):
        await desk.reaches(job, State.ACTIVE)
        await desk.store.moves.cancel(desk.queue, [job])

        assert (await desk.ended(job)).state is State.CANCELLED


async def test_shutdown_lets_running_jobs_finish_and_claims_no_more(desk: Desk) -> None:
    started, go_on = asyncio.Event(), asyncio.Event()

    async def work() -> str:
        started.set()
        await go_on.wait()
        return "whole"

    first = await desk.enqueue("work")
    second = await desk.enqueue("work")
    worker = desk.worker(work, concurrency=1)
    async with running(worker) as run:
        await started.wait()
        worker.stop()
        await turns()
        go_on.set()
        await run

    assert (await desk.job(first)).result == b'"whole"'
    assert (await desk.job(second)).state is State.PENDING


async def test_what_does_not_finish_in_the_drain_is_cancelled_and_given_back(desk: Desk) -> None:
    cleaned: list[str] = []

    async def work() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            cleaned.append("up")

    job = await desk.enqueue("work")
    worker = desk.worker(work, shutdown_timeout=0.1)
    async with running(worker) as run:
        await desk.reaches(job, State.ACTIVE)
        worker.stop()
        await run

    found = await desk.job(job)
    assert cleaned == ["up"]
    assert (found.state, found.attempts) == (State.PENDING, 0)
    assert (await desk.moves(job))[-1] is Move.RELEASE


async def test_a_second_stop_skips_the_drain(desk: Desk) -> None:
    async def work() -> None:
        await asyncio.sleep(60)

    job = await desk.enqueue("work")
    worker = desk.worker(work, shutdown_timeout=10 * PATIENCE)
    async with running(worker) as run, asyncio.timeout(PATIENCE):
        await desk.reaches(job, State.ACTIVE)
        worker.stop()
        await turns()
        assert not run.done()
        worker.stop(now=True)
        await run

    assert (await desk.job(job)).state is State.PENDING


async def test_a_cooperative_thread_that_stops_on_shutdown_has_not_completed(desk: Desk) -> None:
    def work(ctx: JobContext) -> None:
        block_until(lambda: ctx.is_cancelled)

    job = await desk.enqueue("work")
    worker = desk.worker(work, shutdown_timeout=0)
    async with running(worker) as run:
        await desk.reaches(job, State.ACTIVE)
        worker.stop()
        await run

    found = await desk.job(job)
    assert (found.state, found.attempts) == (State.PENDING, 0)


async def test_a_thread_that_never_ends_holds_neither_the_run_nor_its_job(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.worker.worker.STOP_GRACE", 0.1)
    gate = threading.Event()
    ended = threading.Event()

    def stuck() -> str:
        gate.wait(10 * PATIENCE)
        ended.set()
        return "too late"

    job = await desk.enqueue("stuck")
    worker = desk.worker(stuck, shutdown_timeout=0.1)
    async with running(worker) as run, asyncio.timeout(PATIENCE):
        await desk.reaches(job, State.ACTIVE)
        worker.stop()
        await run
    released = await desk.job(job)
    gate.set()
    assert await asyncio.to_thread(ended.wait, PATIENCE)
    await turns()

    assert released.state is State.PENDING
    assert (await desk.job(job)).version == released.version


async def test_a_handler_that_swallows_every_cancel_holds_neither(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.worker.worker.STOP_GRACE", 0.1)
    gate = asyncio.Event()

    async def deaf() -> None:
        while not gate.is_set():
            try:
                await gate.wait()
            except asyncio.CancelledError:
                continue

    job = await desk.enqueue("deaf")
    worker = desk.worker(deaf, shutdown_timeout=0)
    async with running(worker) as run:
        await desk.reaches(job, State.ACTIVE)
        worker.stop()
        await run
    released = await desk.job(job)
    gate.set()
    await turns()

    assert released.state is State.PENDING
    assert (await desk.job(job)).version == released.version


async def test_a_run_that_is_cancelled_gives_its_jobs_back(desk: Desk) -> None:
    async def work() -> None:
        await asyncio.sleep(60)

    job = await desk.enqueue("work")
    run = asyncio.create_task(desk.worker(work).run())
    await desk.reaches(job, State.ACTIVE)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run

    assert (await desk.job(job)).state is State.PENDING


async def test_a_loop_that_cancels_all_its_tasks_costs_no_attempt(desk: Desk) -> None:
    async def work() -> None:
        await asyncio.sleep(60)

    job = await desk.enqueue("work")
    mine = asyncio.all_tasks()
    run = asyncio.create_task(desk.worker(work).run())
    await desk.reaches(job, State.ACTIVE)
    for task in asyncio.all_tasks() - mine:
        task.cancel()
    await asyncio.wait([run])
    await turns()

    assert (await desk.job(job)).attempts == 0


async def test_a_worker_that_was_stopped_before_it_ran_returns_at_once(desk: Desk) -> None:
    async def work() -> None: ...

    job = await desk.enqueue("work")
    worker = desk.worker(work)
    worker.stop()
    async with asyncio.timeout(PATIENCE):
        await worker.run()

    assert (await desk.job(job)).state is State.PENDING


async def test_stop_works_from_another_thread(desk: Desk) -> None:
    worker = desk.worker(poll=60)
    async with running(worker) as run:
        await turns()
        threading.Thread(target=worker.stop).start()
        async with asyncio.timeout(PATIENCE):
            await run
