"""Jobs within a transaction of the caller's: there after the commit, and never after a rollback."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any

import psycopg
import pytest
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from penstock import JobHandle, Penstock, State
from penstock.client.blocking import BlockingQueue
from penstock.core.errors import (
    ConfigError,
    DuplicateJobError,
    IdempotencyConflictError,
    JobNotFoundError,
    OptionError,
    QueueFullError,
    StoreError,
    TransactionError,
)
from penstock.core.job import NewJob, QueueRef
from penstock.core.outcomes import Enqueued, Refused
from penstock.stores.postgres.address import address_of
from penstock.stores.postgres.caller_transaction import CallerEngine
from penstock.stores.postgres.notifier import channel_of
from penstock.stores.values import Topic
from penstock.tasks.middleware import SendNext
from penstock.tasks.task import Task
from tests.stores.postgres.waiting import until_it_waits


class Shop:
    """An app on the store, with one task."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.app = Penstock(url)
        self.ran: list[str] = []

        @self.app.task
        async def send(to: str) -> str:
            self.ran.append(to)
            return to

        self.send: Task[..., [str], str] = send

    def sqlalchemy_url(self) -> str:
        return self.url.replace("postgresql://", "postgresql+psycopg://")


@pytest.fixture
def shop(url: str) -> Shop:
    """A shop on an empty store."""
    return Shop(url)


async def state_of(job: JobHandle[Any]) -> State | None:
    """The job's state; None where there is no such job."""
    try:
        return await job.status()
    except JobNotFoundError:
        return None


@asynccontextmanager
async def psycopg_connection(shop: Shop) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
    connection = await psycopg.AsyncConnection.connect(shop.url)
    try:
        yield connection
    finally:
        await connection.close()


@asynccontextmanager
async def sqlalchemy_session(shop: Shop) -> AsyncIterator[AsyncSession]:
    engine = create_async_engine(shop.sqlalchemy_url())
    async with AsyncSession(engine) as session:
        await session.begin()
        yield session
    await engine.dispose()


@asynccontextmanager
async def sqlalchemy_connection(shop: Shop) -> AsyncIterator[Any]:
    engine = create_async_engine(shop.sqlalchemy_url())
    async with engine.connect() as connection:
        await connection.begin()
        yield connection
    await engine.dispose()


AWAITED = [psycopg_connection, sqlalchemy_session, sqlalchemy_connection]


@pytest.mark.parametrize("opened", AWAITED)
async def test_a_commit_brings_the_job(shop: Shop, opened: Any) -> None:
    """Before it, nobody sees the job."""
    async with shop.app, opened(shop) as connection:
        job = await shop.send.enqueue_in(connection, "ada")
        before = await state_of(job)
        await connection.commit()
        after = await state_of(job)

    assert (before, after) == (None, State.PENDING)


@pytest.mark.parametrize("opened", AWAITED)
async def test_a_rollback_leaves_no_job(shop: Shop, opened: Any) -> None:
    """The queue stays, and takes the next one in."""
    async with shop.app, opened(shop) as connection:
        job = await shop.send.enqueue_in(connection, "ada")
        await connection.rollback()
        lost = await state_of(job)
        kept = await shop.send.enqueue("eve")
        counts = await shop.app.queue("default").counts()

        assert lost is None
        assert await state_of(kept) is State.PENDING
        assert counts[State.PENDING] == 1


@contextmanager
def blocking_psycopg(shop: Shop) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(shop.url) as connection:
        yield connection


@contextmanager
def blocking_session(shop: Shop) -> Iterator[Session]:
    engine = create_engine(shop.sqlalchemy_url())
    with Session(engine) as session:
        session.begin()
        yield session
    engine.dispose()


@contextmanager
def blocking_scoped_session(shop: Shop) -> Iterator[Any]:
    engine = create_engine(shop.sqlalchemy_url())
    session = scoped_session(sessionmaker(engine))
    session.begin()
    yield session
    session.remove()
    engine.dispose()


@contextmanager
def blocking_connection(shop: Shop) -> Iterator[Any]:
    engine = create_engine(shop.sqlalchemy_url())
    with engine.connect() as connection:
        connection.begin()
        yield connection
    engine.dispose()


BLOCKING = [blocking_psycopg, blocking_session, blocking_scoped_session, blocking_connection]


def seen(queue: BlockingQueue, job: JobHandle[Any]) -> State | None:
    """The job's state; None where there is no such job."""
    try:
        return queue.status(job)
    except JobNotFoundError:
        return None


@pytest.mark.parametrize("opened", BLOCKING)
def test_a_commit_brings_the_job_of_blocking_code(shop: Shop, opened: Any) -> None:
    """On the connection, in the thread that calls."""
    with shop.app.blocking as queue, opened(shop) as connection:
        job = queue.enqueue_in(connection, shop.send, "ada")
        before = seen(queue, job)
        connection.commit()

        assert before is None
        assert seen(queue, job) is State.PENDING


@pytest.mark.parametrize("opened", BLOCKING)
def test_a_rollback_leaves_no_job_of_blocking_code(shop: Shop, opened: Any) -> None:
    """Whatever the connection is of."""
    with shop.app.blocking as queue, opened(shop) as connection:
        job = queue.enqueue_in(connection, shop.send, "ada")
        connection.rollback()

        assert seen(queue, job) is None


async def test_a_commit_wakes_a_worker_that_waits(shop: Shop) -> None:
    """Long before it would have looked again."""
    async with shop.app:
        pool = shop.app.worker(poll=3_600)
        running = asyncio.create_task(pool.run())
        first = await shop.send.enqueue("warm")
        await first.result(20)
        async with psycopg_connection(shop) as connection:
            job = await shop.send.enqueue_in(connection, "ada")
            await connection.commit()
            result = await job.result(20)
        pool.stop()
        await running

    assert result == "ada"
    assert shop.ran == ["warm", "ada"]


async def test_options_hold_within_a_transaction(shop: Shop) -> None:
    """Delays, ids and idempotency keys, also against a job of the same transaction."""
    async with shop.app, psycopg_connection(shop) as connection:
        later = await shop.send.options(delay=60).enqueue_in(connection, "later")
        chosen = await shop.send.options(id="mine").enqueue_in(connection, "chosen")
        first = await shop.send.options(idempotency_key="k").enqueue_in(connection, "once")
        again = await shop.send.options(idempotency_key="k").enqueue_in(connection, "once")
        with pytest.raises(IdempotencyConflictError):
            await shop.send.options(idempotency_key="k", strict=True).enqueue_in(connection, "other")
        with pytest.raises(DuplicateJobError):
            await shop.send.options(id="mine").enqueue_in(connection, "other")
        await connection.commit()

        assert await state_of(later) is State.DELAYED
        assert await state_of(chosen) is State.PENDING
        assert (first.created, again.created, again.id) == (True, False, first.id)


async def test_a_savepoint_that_is_rolled_back_takes_its_job_along(shop: Shop) -> None:
    """What was enqueued outside it stays."""
    async with shop.app, psycopg_connection(shop) as connection:
        kept = await shop.send.enqueue_in(connection, "kept")
        async with connection.transaction(force_rollback=True):
            lost = await shop.send.enqueue_in(connection, "lost")
        await connection.commit()

        assert await state_of(kept) is State.PENDING
        assert await state_of(lost) is None


async def test_many_jobs_of_a_transaction_notify_once(shop: Shop) -> None:
    """PostgreSQL keeps one notification for all of the same."""
    async with shop.app, psycopg_connection(shop) as connection, psycopg_connection(shop) as other:
        await shop.app.queue("default").counts()
        await other.set_autocommit(True)
        channel = channel_of("penstock", QueueRef("default", "default"), Topic.READY)
        await other.execute(f'LISTEN "{channel}"'.encode())
        for n in range(5):
            await shop.send.enqueue_in(connection, str(n))
        await connection.commit()
        await other.execute("SELECT pg_notify('last', '')")
        await other.execute('LISTEN "last"')
        heard = [each.channel async for each in other.notifies(timeout=0.5)]

    assert heard == [channel]


async def test_middleware_is_around_it(shop: Shop) -> None:
    """It sees the job, and the store's answer."""
    seen_by: list[str] = []

    async def note(new: NewJob, queue: QueueRef, call_next: SendNext) -> Enqueued | Refused:
        answer = await call_next(new)
        seen_by.append(f"{queue}: {answer.state}")
        return answer

    shop.app.middleware(enqueue=note)
    async with shop.app, psycopg_connection(shop) as connection:
        await shop.send.enqueue_in(connection, "ada")
        await connection.commit()

    assert seen_by == ["default: pending"]


def test_middleware_that_waits_is_refused_in_blocking_code(shop: Shop) -> None:
    """Nothing could run it while the caller's connection is in use."""

    async def wait(new: NewJob, queue: QueueRef, call_next: SendNext) -> Enqueued | Refused:
        await asyncio.sleep(0)
        return await call_next(new)

    shop.app.middleware(enqueue=wait)
    with (
        shop.app.blocking as queue,
        blocking_psycopg(shop) as connection,
        pytest.raises(ConfigError, match="middleware"),
    ):
        queue.enqueue_in(connection, shop.send, "ada")


async def test_a_connection_without_a_transaction_is_refused(shop: Shop) -> None:
    """Each kind says what to do."""
    async with shop.app, psycopg_connection(shop) as connection:
        await connection.set_autocommit(True)
        with pytest.raises(TransactionError, match="autocommit"):
            await shop.send.enqueue_in(connection, "ada")
        async with connection.transaction():
            await shop.send.enqueue_in(connection, "ada")
        await connection.close()
        with pytest.raises(TransactionError, match="closed"):
            await shop.send.enqueue_in(connection, "ada")
        async with sqlalchemy_session(shop) as session:
            pass
        with pytest.raises(TransactionError, match="session"):
            await shop.send.enqueue_in(session, "ada")
        counts = await shop.app.queue("default").counts()

    assert counts[State.PENDING] == 1


async def test_a_failed_transaction_is_refused(shop: Shop) -> None:
    """It can only be rolled back."""
    async with shop.app, psycopg_connection(shop) as connection:
        with pytest.raises(psycopg.errors.DivisionByZero):
            await connection.execute("SELECT 1 / 0")
        with pytest.raises(TransactionError, match="failed already"):
            await shop.send.enqueue_in(connection, "ada")


async def test_the_wrong_kind_of_connection_is_refused(shop: Shop) -> None:
    """One that blocks would hold up the event loop."""
    wrong: Any = object()
    async with shop.app:
        with pytest.raises(TransactionError, match="psycopg 3"):
            await shop.send.enqueue_in(wrong, "ada")
        with blocking_psycopg(shop) as blocks:
            wrong = blocks
            with pytest.raises(TransactionError, match=r"app\.blocking"):
                await shop.send.enqueue_in(wrong, "ada")


async def test_a_connection_to_another_database_is_refused(shop: Shop, url: str) -> None:
    """Also where that has a store of its own."""
    other = Shop(f"{url}?schema=elsewhere")
    async with shop.app, psycopg_connection(shop) as connection, other.app:
        await connection.execute("UPDATE penstock.meta SET value = value + 1 WHERE name = 'store'")
        with pytest.raises(TransactionError, match="another database"):
            await shop.send.enqueue_in(connection, "ada")
        await connection.rollback()
        await other.send.enqueue_in(connection, "eve")
        await connection.commit()
        await connection.execute("DROP SCHEMA elsewhere CASCADE")
        with pytest.raises(TransactionError, match="tables"):
            await other.send.enqueue_in(connection, "eve")
        await connection.rollback()
        await connection.execute("DROP SCHEMA elsewhere CASCADE")
        await connection.commit()


async def test_another_store_says_what_to_use_instead(shop: Shop) -> None:
    """A transaction cannot reach into memory."""
    elsewhere = Shop("memory://")
    async with elsewhere.app, psycopg_connection(shop) as connection:
        with pytest.raises(ConfigError, match=r"penstock\.outbox"):
            await elsewhere.send.enqueue_in(connection, "ada")


async def test_stricter_transactions_can_enqueue(shop: Shop) -> None:
    """What they did not see becomes an error of theirs, never a lost job."""
    async with shop.app, psycopg_connection(shop) as connection:
        await connection.set_isolation_level(psycopg.IsolationLevel.SERIALIZABLE)
        await connection.execute("SELECT 1")
        with pytest.raises(TransactionError, match="before the queue"):
            await shop.send.enqueue_in(connection, "ada")
        await connection.rollback()
        await connection.execute("SELECT 1")
        await shop.send.options(idempotency_key="k").enqueue("ada")
        with pytest.raises(StoreError, match="in favour of another"):
            await shop.send.options(idempotency_key="k").enqueue_in(connection, "ada")
        await connection.rollback()
        job = await shop.send.enqueue_in(connection, "ada")
        await connection.commit()

        assert await state_of(job) is State.PENDING


async def test_limits_hold_within_a_transaction(shop: Shop) -> None:
    """A bounded queue is locked until the commit: nobody else counts its room meanwhile."""
    narrow = shop.app.queue("narrow", max_length=1)
    tight: Task[..., [str], None] = narrow.task(name="tight")(_tight)
    async with shop.app, psycopg_connection(shop) as connection:
        first = await tight.enqueue_in(connection, "first")
        with pytest.raises(QueueFullError):
            await tight.enqueue_in(connection, "second")
        waited, enqueuing = await until_it_waits(shop.url, tight.enqueue("third"))
        await connection.rollback()
        third = await enqueuing

        assert waited
        assert await state_of(first) is None
        assert await state_of(third) is State.PENDING


def test_limits_and_kinds_hold_in_blocking_code(shop: Shop) -> None:
    """What takes several statements there is a savepoint of the caller's transaction."""
    narrow = shop.app.queue("narrow", max_length=1)
    tight: Task[..., [str], None] = narrow.task(name="tight")(_tight)
    with shop.app.blocking as queue, blocking_psycopg(shop) as connection:
        first = queue.enqueue_in(connection, tight, "first")
        with pytest.raises(QueueFullError):
            queue.enqueue_in(connection, tight, "second")
        one = queue.enqueue_in(connection, shop.send.options(unique="live"), "ada")
        again = queue.enqueue_in(connection, shop.send.options(unique="live"), "ada")
        connection.commit()

        assert seen(queue, first) is State.PENDING
        assert (again.id, seen(queue, one)) == (one.id, State.PENDING)


def test_an_engine_in_autocommit_mode_is_refused(shop: Shop) -> None:
    """SQLAlchemy says that it is in a transaction, and the driver is not."""
    engine = create_engine(shop.sqlalchemy_url(), isolation_level="AUTOCOMMIT")
    with (
        shop.app.blocking as queue,
        Session(engine) as session,
        session.begin(),
        pytest.raises(TransactionError, match=r"AUTOCOMMIT.*isolation_level"),
    ):
        queue.enqueue_in(session, shop.send, "ada")
    engine.dispose()


async def test_kinds_and_keys_hold_within_a_transaction(shop: Shop) -> None:
    """One of a kind among its own and others, and keys that take turns."""
    turns = shop.app.queue("turns", mode="keyed", key_limit=1)
    turn: Task[..., [str], None] = turns.task(name="turn")(_tight)
    async with shop.app, psycopg_connection(shop) as connection:
        first = await shop.send.options(unique="live").enqueue_in(connection, "ada")
        again = await shop.send.options(unique="live").enqueue_in(connection, "ada")
        with pytest.raises(OptionError, match="key"):
            await turn.enqueue_in(connection, "keyless")
        keyed = await turn.options(key="k").enqueue_in(connection, "keyed")
        await connection.commit()
        later = await shop.send.options(unique="live").enqueue("ada")
        findings = await shop.app.store.health.check(QueueRef("default", "turns"))
        claimed = await shop.app.store.moves.claim(
            QueueRef("default", "turns"), worker="w", limit=5, lease_ms=30_000
        )

        assert (first.created, again.id, later.id) == (True, first.id, first.id)
        assert [job.id for job in claimed.jobs] == [keyed.id]
        assert findings == []


async def test_strict_transactions_are_refused_where_they_would_not_see_enough(shop: Shop) -> None:
    """They look at the past: how full the queue was, which kinds there were."""
    async with shop.app, psycopg_connection(shop) as connection:
        await shop.app.queue("default").counts()
        await connection.set_isolation_level(psycopg.IsolationLevel.REPEATABLE_READ)
        with pytest.raises(TransactionError, match="read committed"):
            await shop.send.options(unique="live").enqueue_in(connection, "ada")


async def test_a_part_that_fails_is_taken_back_and_the_rest_goes_on(shop: Shop) -> None:
    """What the store does in a transaction of its own is a savepoint of the caller's."""
    async with psycopg_connection(shop) as connection:
        engine = CallerEngine(address_of(shop.url), connection)
        await engine.run("CREATE TEMPORARY TABLE seen (n integer)")
        for n in range(3):
            with suppress(ZeroDivisionError):
                async with engine.transaction():
                    await engine.run("INSERT INTO seen VALUES ($1::integer)", n)
                    if n == 1:
                        raise ZeroDivisionError
        rows = await engine.run("SELECT n FROM seen ORDER BY n")

    assert rows == [(0,), (2,)]


def _tight(to: str) -> None: ...
