"""Behind PgBouncer in transaction mode: nothing is prepared, set or listened for across transactions."""

import asyncio
from collections.abc import Iterator

import psycopg
import pytest

from penstock import Penstock
from penstock.core.errors import ConfigError, StoreTimeoutError
from penstock.core.job import QueueRef
from penstock.core.moves import Complete
from penstock.core.outcomes import Applied
from penstock.core.states import State
from penstock.stores.postgres import PostgresStore
from penstock.testing.conformance.arrange import claim, enqueue, new_job
from tests.conformance.stores import Kind, Place, opened
from tests.kit import pgbouncer
from tests.kit.waiting import PATIENCE

QUEUE = QueueRef("default", "q")

pytestmark = pytest.mark.skipif(pgbouncer.binary() is None, reason="PgBouncer is not installed")


@pytest.fixture
def pooler(kind: Kind, where: Place) -> Iterator[str]:
    """The url of a pooler with two connections to an empty store's server."""
    program = pgbouncer.binary()
    assert program is not None
    port = psycopg.conninfo.conninfo_to_dict(kind.address(where))["port"]
    with pgbouncer.running(program, int(str(port))) as url:
        yield url


async def test_many_calls_at_once_share_the_few_connections_of_a_pooler(pooler: str) -> None:
    """Each transaction has the settings of the store, whichever connection it got."""
    store = PostgresStore(f"{pooler}?pooler=transaction")
    async with asyncio.timeout(PATIENCE), opened(store):
        await asyncio.gather(*(enqueue(store, QUEUE, [new_job(f"j{n}")]) for n in range(40)))
        found = await asyncio.gather(*(claim(store, QUEUE, 1) for _ in range(40)))
        held = [job for jobs in found for job in jobs]
        settled = await asyncio.gather(
            *(store.moves.settle(QUEUE, [Complete(job.id, job.token)]) for job in held)
        )
        [(limit,)] = await store.backend.engine.run("SELECT current_setting('lock_timeout')")
        findings = await store.health.check(QUEUE)

    assert len({job.id for job in held}) == 40
    assert settled == [[Applied(State.COMPLETED)]] * 40
    assert limit == "4s"
    assert findings == []


async def test_no_connection_of_the_pooler_is_kept_after_a_call(pooler: str) -> None:
    """Calls that wait for one would wait until those that are through come again."""
    store = PostgresStore(f"{pooler}?pooler=transaction")
    console = psycopg.AsyncConnection.connect(
        f"{pooler.rpartition('/')[0]}/pgbouncer", autocommit=True, prepare_threshold=None
    )
    taken: list[int] = []
    async with asyncio.timeout(PATIENCE), opened(store), await console as connection:
        for _ in range(20):
            await asyncio.gather(*(store.clock.now() for _ in range(10)))
            cursor = await connection.execute("SHOW POOLS")
            names = [column.name for column in cursor.description or ()]
            pools = [dict(zip(names, row, strict=True)) for row in await cursor.fetchall()]
            taken += [pool["sv_active"] for pool in pools if pool["database"] == "postgres"]

    assert taken == [0] * 20


async def test_what_the_store_sets_is_not_left_to_others(pooler: str) -> None:
    store = PostgresStore(f"{pooler}?pooler=transaction")
    async with opened(store):
        await asyncio.gather(*(store.clock.now() for _ in range(4)))
    async with await psycopg.AsyncConnection.connect(pooler) as other:
        [(limit,)] = await (await other.execute("SELECT current_setting('lock_timeout')")).fetchall()

    assert limit == "0"


async def test_a_lock_that_is_not_given_ends_the_call_behind_a_pooler_too(pooler: str) -> None:
    store = PostgresStore(f"{pooler}?pooler=transaction&answer_timeout=500ms")
    async with opened(store):
        await enqueue(store, QUEUE, [new_job("a")])
        async with await psycopg.AsyncConnection.connect(pooler) as other:
            await other.execute("SELECT 1 FROM penstock.job FOR UPDATE")
            with pytest.raises(StoreTimeoutError, match="locked"):
                await store.moves.cancel(QUEUE, ["a"])

        assert [job.id for job in await claim(store, QUEUE)] == ["a"]


async def test_a_worker_behind_a_pooler_polls_and_gets_every_job(pooler: str) -> None:
    """Its own poll is a minute away; subscriptions are notified at an interval."""
    app = Penstock(f"{pooler}?pooler=transaction")

    @app.task
    async def double(number: int) -> int:
        return 2 * number

    async with asyncio.timeout(PATIENCE), app:
        worker = app.worker(poll=3_600)
        working = asyncio.create_task(worker.run())
        results = [await (await double.enqueue(n)).result(timeout=PATIENCE) for n in range(3)]
        worker.stop()
        await working

    assert results == [0, 2, 4]


async def test_a_pooler_that_the_url_does_not_speak_of_is_found_out(pooler: str) -> None:
    """At the first connection, with what to do about it."""
    with pytest.raises(ConfigError, match="pooler=transaction"):
        await PostgresStore(pooler).open()
