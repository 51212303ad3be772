"""What a handler says about its progress reaches the store."""

import asyncio
import threading
import time
from collections.abc import Sequence

import pytest

from penstock.core.errors import PayloadError
from penstock.core.job import QueueRef
from penstock.core.moves import Report
from penstock.core.outcomes import Applied, Refused
from penstock.core.states import State
from penstock.tasks.context import JobContext
from tests.kit.intercepted import InterceptedStore
from tests.kit.waiting import eventually, until
from tests.worker.kit import Cut, Desk


class Noting(InterceptedStore):
    """Notes each call that brings progress."""

    def __init__(self) -> None:
        super().__init__()
        self.reports: list[tuple[float, list[bytes]]] = []

    async def progress(self, queue: QueueRef, reports: Sequence[Report]) -> list[Applied | Refused]:
        self.reports.append((time.monotonic(), [report.value for report in reports]))
        return await self.real.moves.progress(queue, reports)


async def test_the_first_value_is_there_at_once_and_the_last_one_before_the_settlement(
    queue: QueueRef,
) -> None:
    desk = Desk(queue, Noting())
    gate = asyncio.Event()

    async def work(ctx: JobContext) -> None:
        ctx.progress(1)
        await gate.wait()
        ctx.progress({"done": 2})

    async def has_progress() -> bool:
        return (await desk.job(job)).progress is not None

    job = await desk.enqueue("work")
    async with desk.working(work):
        await eventually(has_progress)
        assert (await desk.job(job)).progress == b"1"
        gate.set()
        found = await desk.ended(job)

    assert (found.state, found.progress) == (State.COMPLETED, b'{"done":2}')


async def test_many_values_become_few_calls_with_the_newest(queue: QueueRef) -> None:
    store = Noting()
    desk = Desk(queue, store)

    def work(ctx: JobContext) -> None:
        end = time.monotonic() + 0.35
        number = 0
        while time.monotonic() < end:
            number += 1
            ctx.progress(number)
            time.sleep(0.001)  # real time: values come faster than the interval between two calls
        ctx.progress("end")

    jobs = [await desk.enqueue("work") for _ in range(3)]
    await desk.burst(work)

    times = [at for at, _ in store.reports]
    assert len(times) <= 12
    assert {(await desk.job(job)).progress for job in jobs} == {b'"end"'}


async def test_progress_from_any_thread(desk: Desk) -> None:
    async def work(ctx: JobContext) -> None:
        threads = [threading.Thread(target=ctx.progress, args=(n,)) for n in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        ctx.progress("last")

    job = await desk.enqueue("work")
    await desk.burst(work)

    assert (await desk.job(job)).progress == b'"last"'


async def test_a_value_that_is_not_json_is_the_handlers_error(desk: Desk) -> None:
    caught: list[Exception] = []

    async def work(ctx: JobContext) -> None:
        with pytest.raises(PayloadError) as info:
            ctx.progress({1, 2})
        caught.append(info.value)

    job = await desk.enqueue("work")
    await desk.burst(work)

    assert (await desk.job(job)).state is State.COMPLETED
    assert len(caught) == 1


async def test_progress_that_the_store_cannot_take_does_not_hold_the_job_up(queue: QueueRef) -> None:
    store = Cut()
    desk = Desk(queue, store)

    async def work(ctx: JobContext) -> int:
        ctx.progress(1)
        await until(lambda: "progress" in store.calls)
        ctx.progress(2)
        return 3

    store.lose_before["progress"] = 1
    job = await desk.enqueue("work")
    await desk.burst(work)

    found = await desk.job(job)
    assert (found.state, found.progress) == (State.COMPLETED, b"2")


async def test_the_answer_to_progress_tells_of_a_cancel_before_the_heartbeat_does(desk: Desk) -> None:
    async def work(ctx: JobContext) -> None:
        while True:
            ctx.progress("alive")
            await asyncio.sleep(0)

    job = await desk.enqueue("work")
    async with desk.working(work, lease=3600.0):
        await desk.reaches(job, State.ACTIVE)
        await desk.store.moves.cancel(desk.queue, [job])

        assert (await desk.ended(job)).state is State.CANCELLED
