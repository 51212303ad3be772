"""The worker's promises on every store."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from penstock.core.job import QueueRef
from penstock.core.moves import Move
from penstock.core.retry import Backoff
from penstock.core.states import State
from penstock.stores.protocol import Store
from penstock.tasks.context import JobContext
from tests.kit.waiting import SLOWNESS, block_until, eventually
from tests.worker.kit import Desk, StoppedDesk, blocking, rests

LEASE: Final = 2.0 * SLOWNESS
"""Seconds: the store's clock goes on, and a busy machine may be late with a third of it."""


async def test_jobs_run_once_and_complete(store: Store, queue: QueueRef) -> None:
    desk = Desk(queue, store)
    ran: list[int] = []

    async def note(n: int) -> int:
        ran.append(n)
        return n

    jobs = [await desk.enqueue("note", b'{"n":%d}' % n) for n in range(50)]
    await desk.burst(note, concurrency=8)

    assert sorted(ran) == list(range(50))
    assert [(await desk.job(job)).result for job in jobs] == [b"%d" % n for n in range(50)]


async def test_an_idle_worker_is_woken_by_an_enqueue(store: Store, queue: QueueRef) -> None:
    desk = Desk(queue, store)

    async def note() -> None: ...

    async with desk.working(note, poll=3600, tick=3600) as worker:
        await rests(worker)
        await desk.ended(await desk.enqueue("note"))
        await rests(worker)
        found = await desk.ended(await desk.enqueue("note"))

        assert found.state is State.COMPLETED


async def test_a_blocked_loop_keeps_its_lease(store: Store, queue: QueueRef) -> None:
    desk = StoppedDesk(queue, store)

    async def block() -> None:
        blocking(_outlasts_its_lease(store.clone(), queue))

    job = await desk.enqueue("block")
    async with desk.working(block, lease=LEASE):
        found = await desk.ended(job)

    assert (found.state, found.delivery, found.attempts) == (State.COMPLETED, 1, 0)


async def _outlasts_its_lease(store: Store, queue: QueueRef) -> None:
    """Wait until a lease is over that there is now, and all that there are have been renewed."""
    await store.open()
    (first,) = await store.reads.leases(queue)

    async def is_renewed() -> bool:
        leases = await store.reads.leases(queue)
        return await store.clock.now() > first.deadline and all(
            each.deadline > first.deadline for each in leases
        )

    try:
        await eventually(is_renewed)
    finally:
        await store.close()


async def test_a_running_job_hears_of_its_cancel_by_notification(store: Store, queue: QueueRef) -> None:
    """Long before its lease is renewed; in a thread as well."""
    desk = Desk(queue, store)

    async def slow() -> None:
        await asyncio.Event().wait()

    def work(ctx: JobContext) -> None:
        block_until(lambda: ctx.is_cancelled)

    jobs = [await desk.enqueue(task) for task in ("slow", "work")]
    async with desk.working(slow, work, lease=3_000):
        for job in jobs:
            await desk.reaches(job, State.ACTIVE)
        async with _another(store) as other:
            for job in jobs:
                await other.moves.cancel(queue, [job])
            found = [await desk.ended(job) for job in jobs]

    assert [each.state for each in found] == [State.CANCELLED, State.CANCELLED]


@asynccontextmanager
async def _another(store: Store) -> AsyncIterator[Store]:
    """The store as another process has it."""
    other = store.clone()
    await other.open()
    try:
        yield other
    finally:
        await other.close()


async def test_errors_cancels_and_progress(store: Store, queue: QueueRef) -> None:
    desk = StoppedDesk(queue, store)

    async def fail() -> None:
        raise ValueError("no luck")

    async def wait(ctx: JobContext) -> None:
        ctx.progress("waiting")
        await asyncio.sleep(60)

    failed = await desk.enqueue("fail", backoff=Backoff.fixed(60))
    waiting = await desk.enqueue("wait")

    async def has_progress() -> bool:
        return (await desk.job(waiting)).progress is not None

    async with desk.working(fail, wait, lease=LEASE):
        retried = await desk.reaches(failed, State.DELAYED)
        await eventually(has_progress)
        await store.moves.cancel(queue, [waiting])
        cancelled = await desk.ended(waiting)

    assert (retried.attempts, retried.reason) == (1, "ERROR")
    assert (cancelled.state, cancelled.progress) == (State.CANCELLED, b'"waiting"')


async def test_shutdown_gives_back_what_runs(store: Store, queue: QueueRef) -> None:
    desk = Desk(queue, store)

    async def wait() -> None:
        await asyncio.sleep(60)

    jobs = [await desk.enqueue("wait") for _ in range(5)]
    async with desk.working(wait):
        for job in jobs:
            await desk.reaches(job, State.ACTIVE)

    assert {(await desk.job(job)).state for job in jobs} == {State.PENDING}
    assert (await desk.moves(jobs[0]))[-1] is Move.RELEASE


async def test_a_dead_workers_jobs_are_recovered(store: Store, queue: QueueRef) -> None:
    desk = Desk(queue, store)

    async def work() -> None: ...

    job = await desk.enqueue("work")
    await store.moves.claim(queue, worker="dead", limit=1, lease_ms=30_000)
    async with desk.working(work, tick=0.1, poll=0.5):
        await store.clock.advance_clock(31_000)
        found = await desk.ended(job)
    await store.clock.advance_clock(-31_000)

    assert (found.state, found.attempts, found.delivery) == (State.COMPLETED, 1, 2)
