"""Handles: asking about a job and waiting for its result."""

import asyncio
from datetime import date

import pytest

from penstock import (
    Fail,
    JobContext,
    JobEndedError,
    JobNotFoundError,
    NewJob,
    Penstock,
    PenstockError,
    QueueRef,
    ResultTimeoutError,
    State,
    StoreUnavailableError,
    WrongStateError,
)
from penstock.client.waiting import LONGEST_POLL
from penstock.core.job import Job
from penstock.core.moves import Complete, Report
from penstock.stores.memory import MemoryStore
from tests.client.stores import Deaf
from tests.kit.intercepted import InterceptedStore
from tests.kit.waiting import PATIENCE

Q = QueueRef("default", "default")


def make(store: MemoryStore) -> Penstock:
    app = Penstock(store=store)

    @app.task
    async def later(day: date) -> date:
        return day

    @app.task
    async def picky(ctx: JobContext, word: str) -> None:
        ctx.progress({"word": word})
        raise Fail("not this word")

    return app


async def finish(store: MemoryStore, job: str, result: bytes) -> None:
    """Be the worker."""
    claims = await store.moves.claim(Q, worker="w", limit=10, lease_ms=30_000)
    (token,) = (each.token for each in claims.jobs if each.id == job)
    await store.moves.settle(Q, [Complete(job, token, result)])


async def test_a_result_is_waited_for_and_decoded_as_declared() -> None:
    store = MemoryStore()
    app = make(store)
    async with app:
        handle = await app.task_named("later").enqueue(date(2026, 1, 31))
        assert await handle.status() is State.PENDING

        waiting = asyncio.create_task(handle.result(timeout=PATIENCE))
        await asyncio.sleep(0)
        await finish(store, handle.id, b'"2026-02-01"')

        assert await waiting == date(2026, 2, 1)
        assert await handle.status() is State.COMPLETED
        assert await handle.result() == date(2026, 2, 1)


async def test_many_wait_for_the_same_and_for_different_jobs() -> None:
    store = MemoryStore()
    app = make(store)
    async with app:
        handles = await app.task_named("later").enqueue_many([(date(2026, 1, day),) for day in range(1, 10)])
        waiting = [asyncio.create_task(handle.result(10)) for handle in [*handles, *handles]]
        await app.worker(burst=True).run()

        assert await asyncio.gather(*waiting) == [date(2026, 1, day) for day in range(1, 10)] * 2


async def test_a_job_that_ended_without_a_result_says_how() -> None:
    app = make(MemoryStore())
    async with app:
        handle = await app.task_named("picky").enqueue(word="no")
        await app.worker(burst=True).run()

        with pytest.raises(JobEndedError, match="is failed") as caught:
            await handle.result()
        assert (caught.value.state, caught.value.error) == ("failed", "not this word")
        assert await handle.progress() == {"word": "no"}


async def test_a_result_that_takes_too_long_is_a_timeout_and_the_job_goes_on() -> None:
    app = make(MemoryStore())
    async with app:
        handle = await app.task_named("later").enqueue(date.min)

        with pytest.raises(ResultTimeoutError, match=r"did not end within 0\.01 s"):
            await handle.result(timeout=0.01)  # real time: nobody works, so any time runs out
        assert await handle.status() is State.PENDING


async def test_a_job_that_waits_is_cancelled_at_once() -> None:
    app = make(MemoryStore())
    async with app:
        handle = await app.task_named("later").enqueue(date.min)
        waiting = asyncio.create_task(handle.result())

        assert await handle.cancel() is State.CANCELLED
        assert await handle.cancel() is State.CANCELLED
        with pytest.raises(JobEndedError, match="is cancelled"):
            await waiting


async def test_a_job_that_runs_is_asked_to_stop() -> None:
    store = MemoryStore()
    app = make(store)
    async with app:
        handle = await app.task_named("later").enqueue(date.min)
        await store.moves.claim(Q, worker="w", limit=1, lease_ms=30_000)

        assert await handle.cancel() is State.ACTIVE
        assert (await handle.info()).cancel_requested


async def test_a_job_that_ended_cannot_be_cancelled() -> None:
    store = MemoryStore()
    app = make(store)
    async with app:
        handle = await app.task_named("later").enqueue(date.min)
        await finish(store, handle.id, b"null")

        with pytest.raises(WrongStateError, match="is completed"):
            await handle.cancel()


async def test_a_job_that_is_gone_is_not_found() -> None:
    app = make(MemoryStore())
    async with app:
        handle = app.job("default", "nobody")

        for ask in (handle.info, handle.status, handle.progress, handle.result, handle.cancel):
            with pytest.raises(JobNotFoundError, match="default/nobody"):
                await ask()


async def test_a_handle_can_be_made_from_an_id() -> None:
    store = MemoryStore()
    app = make(store)
    async with app:
        sent = await app.task_named("later").enqueue(date.min)
        await finish(store, sent.id, b'"2026-02-01"')

        assert await app.task_named("later").handle(sent.id).result() == date(2026, 2, 1)
        assert await app.job("default", sent.id).result() == "2026-02-01"


class _FinishedMeanwhile(Deaf):
    """The job ends while nobody listens, after some polls."""

    async def meanwhile(self) -> None:
        if len(self.waits) == 12:
            job = (await self.events.read_events(Q))[0].job
            await finish(self, job or "", b'"2026-02-01"')


async def test_without_a_bell_the_result_is_found_by_polls_further_and_further_apart() -> None:
    store = _FinishedMeanwhile()
    app = make(store)
    async with app:
        handle = await app.task_named("later").enqueue(date.min)

        assert await handle.result(timeout=PATIENCE) == date(2026, 2, 1)
    assert store.waits[:4] == [0.1, 0.2, 0.4, 0.8]
    assert store.waits[-1] == LONGEST_POLL


class _Broken(InterceptedStore):
    async def get(self, queue: QueueRef, ids: object) -> list[Job | None]:
        raise StoreUnavailableError("nobody there")


async def test_a_store_that_stays_away_ends_the_wait(naps: list[float]) -> None:
    app = make(_Broken())
    async with app:
        handle = await app.task_named("later").enqueue(date.min)

        results = await asyncio.gather(*(handle.result(10) for _ in range(3)), return_exceptions=True)

        assert [type(each) for each in results] == [StoreUnavailableError] * 3
        with pytest.raises(StoreUnavailableError):
            await handle.status()


async def test_a_wait_ends_when_the_app_is_closed() -> None:
    app = make(MemoryStore())
    async with app:
        handle = await app.task_named("later").enqueue(date.min)
        waiting = asyncio.create_task(handle.result())
        await asyncio.sleep(0)

    with pytest.raises(PenstockError, match="closed while a result was waited for"):
        await waiting


async def test_a_wait_begun_while_the_last_one_ends_is_not_forgotten() -> None:
    store = MemoryStore()
    app = make(store)
    async with app:
        for number in range(20):
            job = NewJob(id=f"j{number}", nonce="n", task="later", payload=b"{}")
            await store.moves.enqueue(Q, [job])
            waiting = asyncio.create_task(app.job("default", job.id).result(timeout=PATIENCE))
            for _ in range(number):
                await asyncio.sleep(0)
            await finish(store, job.id, b"3")

            assert await waiting == 3


async def test_progress_is_watched_until_the_job_has_ended() -> None:
    store = MemoryStore()
    app = make(store)
    async with app:
        handle = await app.task_named("later").enqueue(date.min)
        (job,) = (await store.moves.claim(Q, worker="w", limit=1, lease_ms=30_000)).jobs
        await store.moves.progress(Q, [Report(job.id, job.token, b"1")])
        seen: list[object] = []

        async for value in handle.watch_progress(every=0.01):
            seen.append(value)
            if value == 1:
                await store.moves.progress(Q, [Report(job.id, job.token, b"2")])
            else:
                await store.moves.progress(Q, [Report(job.id, job.token, b'{"at":3}')])
                await store.moves.settle(Q, [Complete(job.id, job.token, b"null")])

    assert seen == [1, 2, {"at": 3}]


async def test_a_result_is_kept_for_longer_than_its_job_needs_to_be() -> None:
    store = MemoryStore()
    app = make(store)
    async with app:
        handle = await app.task_named("later").options(retention=0, result_retention=60).enqueue(date.min)
        await finish(store, handle.id, b'"2026-02-01"')
        await store.clock.advance_clock(59_000)
        assert await store.moves.prune(Q) == 0
        assert await handle.result() == date(2026, 2, 1)
        await store.clock.advance_clock(1_000)
        assert await store.moves.prune(Q) == 1
