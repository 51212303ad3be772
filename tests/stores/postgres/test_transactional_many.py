"""Many jobs within a transaction of the caller's, in few statements."""

from typing import Any

import psycopg
import pytest

from penstock import BatchRefusedError, DuplicateJobError, JobHandle, State, TransactionError
from penstock.core.job import NewJob, QueueRef
from penstock.core.outcomes import Enqueued, Refused
from penstock.stores.bounds import CHUNK_JOBS
from penstock.tasks.middleware import SendNext
from tests.stores.postgres.test_transactional import Shop, psycopg_connection, seen, state_of


@pytest.fixture
def shop(url: str) -> Shop:
    """A shop on an empty store."""
    return Shop(url)


async def test_a_commit_brings_all_of_them_in_their_order(shop: Shop) -> None:
    """Over several calls to the store, and two queues."""

    @shop.app.queue("other").task
    async def note(what: str) -> None: ...

    calls = [shop.send.call(str(n)) if n % 2 else note.call(str(n)) for n in range(2 * CHUNK_JOBS + 10)]
    async with shop.app, psycopg_connection(shop) as connection:
        jobs: list[JobHandle[Any]] = await shop.send.enqueue_many_in(connection, calls)  # type: ignore[arg-type]
        before = await state_of(jobs[0])
        await connection.commit()
        counts = [(await shop.app.queue(name).counts())[State.PENDING] for name in ("default", "other")]
        payloads = [(await job.info()).payload for job in (*jobs[:3], jobs[-1])]
        store = shop.app.store
        line = await store.moves.claim(
            QueueRef("default", "default"), worker="w", limit=1_000, lease_ms=1_000
        )

    assert before is None
    assert counts == [CHUNK_JOBS + 5, CHUNK_JOBS + 5]
    assert payloads == [b'{"what":"0"}', b'{"to":"1"}', b'{"what":"2"}', b'{"to":"2009"}']
    assert [job.id for job in line.jobs] == [job.id for job in jobs if job.queue == "default"][:1_000]


async def test_a_rollback_leaves_none_of_them(shop: Shop) -> None:
    async with shop.app, psycopg_connection(shop) as connection:
        jobs = await shop.send.options(delay=60).enqueue_many_in(connection, [("ada",), {"to": "eve"}])
        await connection.rollback()

        assert [await state_of(job) for job in jobs] == [None, None]


def test_blocking_code_enqueues_many_too(shop: Shop) -> None:
    """On the connection, in the thread that calls."""
    with shop.app.blocking as queue, psycopg.connect(shop.url) as connection:
        jobs = queue.enqueue_many_in(connection, shop.send, [("ada",), ("eve",)])
        before = [seen(queue, job) for job in jobs]
        connection.commit()

        assert before == [None, None]
        assert [seen(queue, job) for job in jobs] == [State.PENDING, State.PENDING]


async def test_what_is_refused_is_told_and_the_others_are_part_of_the_transaction(shop: Shop) -> None:
    """Whoever wants all or nothing rolls back."""
    async with shop.app, psycopg_connection(shop) as connection:
        await shop.send.options(id="mine").enqueue("first")
        mine = shop.send.options(id="mine").call("second")
        with pytest.raises(BatchRefusedError) as refused:
            await shop.send.enqueue_many_in(connection, [mine, ("ada",)])
        await connection.commit()
        error, job = refused.value.outcomes

        assert isinstance(error, DuplicateJobError)
        assert isinstance(job, JobHandle)
        assert await state_of(job) is State.PENDING


async def test_none_is_enqueued_outside_a_transaction(shop: Shop) -> None:
    async with shop.app, await psycopg.AsyncConnection.connect(shop.url, autocommit=True) as connection:
        with pytest.raises(TransactionError, match="autocommit"):
            await shop.send.enqueue_many_in(connection, [("ada",), ("eve",)])

        assert (await shop.app.queue("default").counts())[State.PENDING] == 0


async def test_middleware_is_around_each_of_them(shop: Shop) -> None:
    """In their order."""
    passed: list[bytes] = []

    async def note(new: NewJob, queue: QueueRef, call_next: SendNext) -> Enqueued | Refused:
        passed.append(new.payload)
        return await call_next(new)

    shop.app.middleware(enqueue=note)
    async with shop.app, psycopg_connection(shop) as connection:
        jobs = await shop.send.enqueue_many_in(connection, [("ada",), ("eve",)])
        await connection.commit()

        assert passed == [b'{"to":"ada"}', b'{"to":"eve"}']
        assert [await state_of(job) for job in jobs] == [State.PENDING, State.PENDING]
