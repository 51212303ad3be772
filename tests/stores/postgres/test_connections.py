"""Connections: how many, how long anybody waits for one, and what becomes of those that were lost."""

import asyncio
import secrets
import signal

import psycopg
import pytest

from penstock import Penstock
from penstock.core.errors import ConfigError, OptionError, PoolTimeoutError, StoreTimeoutError
from penstock.core.job import QueueRef
from penstock.stores.postgres import PostgresStore
from penstock.stores.postgres.address import PoolSettings, address_of
from penstock.stores.postgres.pool import connect
from penstock.stores.values import Topic
from penstock.testing.conformance.arrange import claim, enqueue, new_job
from tests.conformance.stores import Kind, opened
from tests.kit import postgres
from tests.kit.subscriptions import drain_notifications
from tests.kit.waiting import PATIENCE, eventually, turns
from tests.stores.postgres.conftest import binaries_of
from tests.stores.postgres.waiting import until_it_waits

QUEUE = QueueRef("default", "q")
MINE = "FROM pg_stat_activity WHERE application_name LIKE 'penstock%' AND pid <> pg_backend_pid()"


async def _end_all(url: str) -> None:
    """End every connection of Penstock's, and wait until they are gone."""
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as operator:
        found = await (
            await operator.execute(f"SELECT pid, pg_terminate_backend(pid) {MINE}".encode())
        ).fetchall()
        gone = "SELECT count(*) FROM pg_stat_activity WHERE pid = ANY(%s)"

        async def are_gone() -> bool:
            return await (await operator.execute(gone, ([pid for pid, _ in found],))).fetchone() == (0,)

        await eventually(are_gone, "the end of the connections")


async def _listeners(operator: psycopg.AsyncConnection[tuple[int]], without: int = 0) -> int:
    """The process that serves the connection which listens, once it is another one than that."""

    async def listens() -> int:
        found = await operator.execute(
            "SELECT pid FROM pg_stat_activity WHERE application_name = 'penstock-listen' "
            "AND state = 'idle' AND query LIKE 'LISTEN%%' AND pid <> %s",
            (without,),
        )
        row = await found.fetchone()
        return 0 if row is None else row[0]

    return await eventually(listens, "a connection that listens")


def test_a_url_sets_how_many_and_how_long() -> None:
    """The rest of the question goes to the driver."""
    address = address_of(
        "postgresql://h/d?connections=3&idle_connections=2&pool_timeout=500ms&answer_timeout=2&sslmode=require"
        "&role=mail"
    )

    assert address.pool == PoolSettings(
        connections=3, idle_connections=2, pool_timeout=0.5, answer_timeout=2.0
    )
    assert address.role == "mail"
    assert address.conninfo == "postgresql://h/d?sslmode=require"


@pytest.mark.parametrize(
    "query",
    [
        "connections=0",
        "connections=ten",
        "idle_connections=-1",
        "idle_connections=1001",
        "pool_timeout=0",
        "role=Some One",
        "pooler=session",
    ],
)
def test_a_url_that_says_nonsense_is_refused(query: str) -> None:
    with pytest.raises((ConfigError, OptionError)):
        address_of(f"postgresql://h/d?{query}")


async def test_who_finds_no_free_connection_in_time_has_sent_nothing(url: str) -> None:
    """And the call that had it goes on."""
    store = PostgresStore(f"{url}?connections=1&pool_timeout=50ms")
    async with opened(store):
        await enqueue(store, QUEUE, [new_job("a")])
        async with await psycopg.AsyncConnection.connect(url) as other:
            await other.execute("SELECT 1 FROM penstock.job FOR UPDATE")
            stuck = asyncio.create_task(store.moves.cancel(QUEUE, ["a"]))
            await asyncio.sleep(0)
            with pytest.raises(PoolTimeoutError, match="nothing was sent"):
                await store.clock.now()
        await stuck

        assert await claim(store, QUEUE) == []


async def test_who_waits_too_long_for_enqueues_before_his_has_sent_nothing(url: str) -> None:
    """They go one after the other: each could take until its answer is due."""
    store = PostgresStore(f"{url}?pool_timeout=50ms")
    async with opened(store):
        await store.queues.open_queue(QUEUE)
        async with await psycopg.AsyncConnection.connect(url) as other:
            await other.execute("LOCK TABLE penstock.job IN SHARE MODE")
            stuck, task = await until_it_waits(url, enqueue(store, QUEUE, [new_job("a")]))
            with pytest.raises(PoolTimeoutError, match="nothing was sent"):
                await enqueue(store, QUEUE, [new_job("b")])
        await task

        assert stuck
        assert [job.id for job in await claim(store, QUEUE, 2)] == ["a"]


def test_a_store_is_used_in_one_event_loop_after_the_other(url: str) -> None:
    """Whatever waited in the first."""
    store = PostgresStore(url)

    async def both(one: str, two: str) -> None:
        async with opened(store):
            await asyncio.gather(*(enqueue(store, QUEUE, [new_job(name)]) for name in (one, two)))

    for names in (("a", "b"), ("c", "d")):
        asyncio.run(both(*names))


async def test_never_more_connections_than_the_url_allows(url: str) -> None:
    store = PostgresStore(f"{url}?connections=2")
    async with opened(store), await psycopg.AsyncConnection.connect(url) as operator:
        await asyncio.gather(*(store.clock.now() for _ in range(30)))
        [(count,)] = await (await operator.execute(f"SELECT count(*) {MINE}".encode())).fetchall()

    assert count <= 2


async def _until_there_are(url: str, count: int) -> None:
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as operator:

        async def are_there() -> bool:
            return await (await operator.execute(f"SELECT count(*) {MINE}".encode())).fetchone() == (count,)

        await eventually(are_there, f"{count} connections")


@pytest.mark.parametrize(("options", "kept"), [("connections=6", 3), ("connections=6&idle_connections=4", 4)])
async def test_half_of_the_connections_are_kept_open_unless_it_is_said(
    url: str, options: str, kept: int
) -> None:
    async with opened(PostgresStore(f"{url}?{options}")) as store:
        await _until_there_are(url, kept)

        assert await store.clock.now() > 0
    await _until_there_are(url, 0)


async def test_kept_connections_that_the_server_ended_are_made_again(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also while nobody makes a call."""
    monkeypatch.setattr("penstock.stores.postgres.pool.CHECK_SECONDS", 0.05)
    async with opened(PostgresStore(f"{url}?connections=6")):
        await _until_there_are(url, 3)
        await _end_all(url)
        await _until_there_are(url, 3)


async def test_kept_connections_are_no_more_than_the_url_allows(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many calls make some at the same time."""
    monkeypatch.setattr("penstock.stores.postgres.pool.CHECK_SECONDS", 0.01)
    # The server lists a connection for a moment after its client closed it, as those of the test before.
    await _until_there_are(url, 0)
    most = 0
    store = PostgresStore(f"{url}?connections=3&idle_connections=1000&pool_timeout=60")
    async with opened(store), await psycopg.AsyncConnection.connect(url, autocommit=True) as operator:
        for _ in range(5):
            await asyncio.gather(*(store.clock.now() for _ in range(30)))
            [(count,)] = await (await operator.execute(f"SELECT count(*) {MINE}".encode())).fetchall()
            most = max(most, count)
        await _until_there_are(url, 3)

    assert most <= 3


async def test_a_pool_that_is_closed_makes_no_more_connections(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even the one that it was about to make."""
    monkeypatch.setattr("penstock.stores.postgres.pool._KEEP_PAUSE", 60.0)
    before = asyncio.all_tasks()
    async with opened(PostgresStore(f"{url}?idle_connections=5")) as store:
        await store.clock.now()

    assert asyncio.all_tasks() == before
    await _until_there_are(url, 0)


async def test_a_connection_that_is_being_made_ends_with_its_pool(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At whatever point of making it the pool is closed, and while the store is kept."""
    monkeypatch.setattr("penstock.stores.postgres.pool._KEEP_PAUSE", 0.0)
    closed = []
    for passes in range(60):
        async with opened(PostgresStore(f"{url}?idle_connections=5")) as store:
            await store.clock.now()
            await turns(passes)
        closed.append(store)

    await _until_there_are(url, 0)


async def test_a_lock_that_is_not_given_ends_the_call_before_the_answer_is_due(url: str) -> None:
    """By the server's own limit, so that nothing is left running."""
    store = PostgresStore(f"{url}?answer_timeout=2s")
    async with opened(store):
        await enqueue(store, QUEUE, [new_job("a")])
        async with await psycopg.AsyncConnection.connect(url) as other:
            await other.execute("SELECT 1 FROM penstock.job FOR UPDATE")
            with pytest.raises(StoreTimeoutError, match="locked"):
                await store.moves.cancel(QUEUE, ["a"])

        assert [job.id for job in await claim(store, QUEUE)] == ["a"]


async def test_moves_wait_for_each_other_also_where_a_role_asks_for_serializable_transactions(
    url: str,
) -> None:
    """They are written for READ COMMITTED: under anything stricter they would fail instead."""
    role = f"strict_{secrets.token_hex(4)}"
    with psycopg.connect(url, autocommit=True) as operator:
        operator.execute(f"CREATE ROLE {role} SUPERUSER LOGIN")
        operator.execute(f"ALTER ROLE {role} SET default_transaction_isolation = 'serializable'")
        try:
            connection = await connect(address_of(url.replace("postgres@", f"{role}@", 1)))
            async with connection:
                found = await (await connection.execute("SHOW transaction_isolation")).fetchone()
        finally:
            operator.execute(f"DROP ROLE {role}")

    assert found == ("read committed",)


async def test_a_server_that_says_nothing_is_not_waited_for(kind: Kind) -> None:
    """It is alive and takes connections, but its processes stand still."""
    binaries = binaries_of(kind)
    with postgres.running(binaries) as server:
        store = PostgresStore(f"{server.url}?answer_timeout=2s&connect_timeout=5s")
        async with opened(store), asyncio.timeout(PATIENCE):
            await enqueue(store, QUEUE, [new_job("a")])
            [(pid,)] = await store.backend.engine.run("SELECT pg_backend_pid()")
            postgres.tell(pid, signal.SIGSTOP)
            try:
                with pytest.raises(StoreTimeoutError, match="did not answer"):
                    await store.clock.now()
            finally:
                postgres.tell(pid, signal.SIGCONT)

            assert [job.id for job in await claim(store, QUEUE)] == ["a"]


async def test_connections_that_were_ended_while_idle_cost_no_call(url: str) -> None:
    """However many lay in the pool."""
    store = PostgresStore(url)
    async with opened(store):
        await asyncio.gather(*(store.clock.now() for _ in range(5)))
        await _end_all(url)
        found = await asyncio.gather(*(store.clock.now() for _ in range(5)))

    assert len(found) == 5


async def test_a_subscription_notifies_of_what_happened_while_nobody_listened(url: str) -> None:
    """And for what comes after, over a new connection."""
    store, other = PostgresStore(url), PostgresStore(url)
    async with (
        asyncio.timeout(PATIENCE),
        opened(store),
        opened(other),
        store.notifier.subscribe(QUEUE, Topic.READY) as subscription,
        await psycopg.AsyncConnection.connect(url, autocommit=True) as operator,
    ):
        listener = await _listeners(operator)
        await drain_notifications(subscription)
        await operator.execute("SELECT pg_terminate_backend(%s)", (listener,))
        await enqueue(other, QUEUE, [new_job("a")])
        assert await subscription.wait(PATIENCE)
        await _listeners(operator, without=listener)
        await drain_notifications(subscription)
        await enqueue(other, QUEUE, [new_job("b")])
        assert await subscription.wait(PATIENCE)


async def test_what_is_enqueued_between_an_empty_claim_and_the_wait_notifies(url: str) -> None:
    """The subscription is there before the claim looks, so nothing falls between the two."""
    store, other = PostgresStore(url), PostgresStore(url)
    async with asyncio.timeout(PATIENCE), opened(store), opened(other):
        for number in range(20):
            async with store.notifier.subscribe(QUEUE, Topic.READY) as subscription:
                assert await claim(store, QUEUE) == []
                await enqueue(other, QUEUE, [new_job(f"j{number}")])
                while not await claim(store, QUEUE):
                    assert await subscription.wait(PATIENCE)


async def test_a_worker_lives_through_the_end_of_all_its_connections(url: str) -> None:
    """Again and again, with jobs coming all the time; the fallback poll is an hour away."""
    app = Penstock(url)
    seen: list[int] = []

    @app.task
    async def note(number: int) -> None:
        seen.append(number)

    async with asyncio.timeout(PATIENCE), app:
        worker = app.worker(poll=3_600)
        working = asyncio.create_task(worker.run())
        for number in range(5):
            job = await note.enqueue(number)
            await _end_all(url)
            await job.result(timeout=PATIENCE)
        worker.stop()
        await working
        findings = await app.store.health.check(QueueRef("default", "default"))

    assert sorted(set(seen)) == list(range(5))
    assert findings == []


async def test_a_worker_goes_on_after_its_server_was_killed_and_came_back(kind: Kind) -> None:
    """Nothing is started anew: not the worker, not the producer, not the one that waits for a result."""
    binaries = binaries_of(kind)
    with postgres.data_folder(binaries) as folder:
        process, port = postgres.start(binaries, folder)
        app = Penstock(postgres.url_at(port))
        gate, begun = asyncio.Event(), asyncio.Event()

        @app.task
        async def send(number: int) -> int:
            if number == 1:
                begun.set()
                await gate.wait()
            return number

        try:
            async with asyncio.timeout(PATIENCE), app:
                worker = app.worker(poll=3_600)
                working = asyncio.create_task(worker.run())
                before = await send.enqueue(1)
                await begun.wait()
                waiting = asyncio.create_task(before.result(timeout=PATIENCE))
                postgres.kill(process)
                gate.set()
                meanwhile = asyncio.create_task(send.enqueue(2))
                process, _ = await asyncio.to_thread(postgres.start, binaries, folder, port=port)
                results = [await waiting, await (await meanwhile).result(timeout=PATIENCE)]
                results.append(await (await send.enqueue(3)).result(timeout=PATIENCE))
                worker.stop()
                await working
                findings = await app.store.health.check(QueueRef("default", "default"))
        finally:
            postgres.stop(process)

    assert results == [1, 2, 3]
    assert findings == []
