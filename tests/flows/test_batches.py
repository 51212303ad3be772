"""Batches: many jobs under one id, and a job after all of them."""

import asyncio
from typing import Any

import pytest

from penstock import (
    DuplicateJobError,
    Fail,
    FlowCounts,
    FlowError,
    InvalidNameError,
    JobContext,
    JobNotFoundError,
    Penstock,
    ResultTimeoutError,
    State,
    Task,
)
from penstock.stores.memory import MemoryStore
from tests.kit.waiting import PATIENCE


def tasks(app: Penstock) -> tuple[Task[..., [int], int], Task[..., [], Any]]:
    @app.queue("parts").task(max_attempts=1)
    async def part(number: int) -> int:
        if number < 0:
            raise Fail("a negative part")
        return number

    @app.queue("ends").task
    async def end(ctx: JobContext) -> Any:
        return [child.result for child in await ctx.children()]

    return part, end


async def work(app: Penstock, rounds: int = 3) -> None:
    for _ in range(rounds):
        await app.worker(burst=True).run()


async def test_the_job_after_all_others_runs_however_they_ended_and_sees_how(app: Penstock) -> None:
    part, end = tasks(app)
    async with app:
        batch = await app.batch([part.call(number) for number in (1, -1, 3)], then=end.call())
        assert await batch.counts() == FlowCounts(waiting=3)
        with pytest.raises(ResultTimeoutError):
            await batch.wait(timeout=0.01)  # real time: nobody works on it, so any time runs out
        waiting = asyncio.create_task(batch.wait(timeout=PATIENCE))
        await work(app)

        assert await waiting == FlowCounts(completed=2, failed=1)
        assert await batch.result() == [1, None, 3]
        assert [child.state for child in await batch.outcomes()] == ["completed", "failed", "completed"]


async def test_a_batch_without_a_job_after_it_ends_too(app: Penstock) -> None:
    part, _ = tasks(app)
    async with app:
        batch = await app.batch([part.call(number) for number in range(-2, 300)])
        await work(app)

        assert await batch.result(timeout=PATIENCE) == {"completed": 300, "failed": 2}
        counts = await batch.counts()
        assert (counts.total, counts.ended, counts.live) == (302, 302, 0)


async def test_a_batch_is_opened_again_by_its_id_or_name(app: Penstock) -> None:
    part, end = tasks(app)
    async with app:
        plain = await app.batch([part.call(1)])
        named = await app.batch([part.call(1)], then=end.call(), name="nightly")
        with pytest.raises(DuplicateJobError, match="'nightly'"):
            await app.batch([part.call(1)], then=end.call(), name="nightly")
        await work(app)

        assert await app.get_batch(plain.id).wait(timeout=PATIENCE) == FlowCounts(completed=1)
        assert named.id == "ends/nightly"
        assert await app.get_batch("ends/nightly").result(timeout=PATIENCE) == [1]
        with pytest.raises(JobNotFoundError):
            await app.get_batch("ends/never").counts()
        with pytest.raises(InvalidNameError, match="queue/id"):
            app.get_batch("nightly")
        with pytest.raises(FlowError, match="empty"):
            await app.batch([])


async def test_a_batch_of_keyed_jobs_ends_under_one_of_their_keys() -> None:
    app = Penstock(store=MemoryStore())

    @app.queue("mail", mode="keyed").task
    async def send(to: str) -> str:
        return to

    async with app:
        batch = await app.batch([send.options(key=to).call(to) for to in ("ada", "bob")])
        await work(app)

        assert await batch.result(timeout=PATIENCE) == {"completed": 2}


async def test_a_batch_is_cancelled(app: Penstock) -> None:
    part, end = tasks(app)
    async with app:
        batch = await app.batch([part.call(1), part.options(delay=60).call(2)], then=end.call())
        await app.worker(["parts"], burst=True).run()

        assert await batch.cancel() == 2
        assert (await app.queue("ends").counts())[State.CANCELLED] == 1


async def test_a_deleted_job_is_gone_once_the_job_after_it_has_ended(app: Penstock) -> None:
    part, end = tasks(app)
    async with app:
        batch = await app.batch([part.options(delay=60).call(number) for number in (1, 2)], then=end.call())
        await app.job(*batch.id.split("/")).cancel()
        with pytest.raises(ResultTimeoutError):
            await batch.wait(timeout=0.01)  # real time: nobody works on it, so any time runs out
        await app.queue("parts").purge(["delayed"])

        assert await batch.counts() == FlowCounts(gone=2)
        assert await batch.wait(timeout=PATIENCE) == FlowCounts(gone=2)


async def test_jobs_that_go_on_without_the_job_after_them_are_waited_for(app: Penstock) -> None:
    part, end = tasks(app)
    async with app:
        batch = await app.batch([part.call(1), part.call(-1)], then=end.call())
        await app.job(*batch.id.split("/")).cancel()
        with pytest.raises(ResultTimeoutError):
            await batch.wait(timeout=0.01)  # real time: nobody works on it, so any time runs out
        waiting = asyncio.create_task(batch.wait(timeout=PATIENCE))
        await work(app)

        assert await waiting == FlowCounts(completed=1, failed=1)
