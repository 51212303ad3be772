"""Hints for claims: they spare walking over what is gone, and never hide a job."""

import psycopg
import pytest

from penstock.core.job import QueueRef
from penstock.core.moves import Complete, Release
from penstock.stores.postgres import PostgresStore, hints
from penstock.stores.postgres.hints import Hints
from penstock.testing.conformance.arrange import claim, enqueue, new_job
from tests.conformance.stores import opened

QUEUE = QueueRef("default", "q")


@pytest.fixture(autouse=True)
def _look_always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hints, "PEEK_SECONDS", 0.0)


async def _floor(store: PostgresStore, tier: int = 5) -> int:
    return store.backend.hints[await store.backend.open_number(QUEUE)].floors[tier]


async def test_the_floor_follows_what_was_claimed(url: str) -> None:
    """Two looks behind, and never past a job that waits."""
    store = PostgresStore(url)
    async with opened(store):
        await enqueue(store, QUEUE, [new_job(f"j{n}") for n in range(10)])
        for _ in range(4):
            await claim(store, QUEUE, 2)
        floor = await _floor(store)
        rest = await claim(store, QUEUE, 9)

    assert 4 <= floor <= 8
    assert [job.id for job in rest] == ["j8", "j9"]


async def test_a_job_that_is_committed_late_is_claimed(url: str) -> None:
    """Its place is lower than those already claimed; the floor waits for its transaction."""
    store = PostgresStore(url)
    async with opened(store):
        await enqueue(store, QUEUE, [new_job("a")])
        async with await psycopg.AsyncConnection.connect(url) as late:
            await late.execute(
                "WITH mine AS MATERIALIZED (SELECT pg_current_xact_id() AS stamp) "
                "INSERT INTO penstock.job (queue, priority, max_attempts, place, stamp, enqueued_at, "
                "retention_ms, key_held_ms, state, id, nonce, task, options, payload) "
                "SELECT queue, priority, max_attempts, nextval('penstock.number_' || queue), mine.stamp, "
                "enqueued_at, retention_ms, key_held_ms, state, 'late', nonce, task, options, payload "
                "FROM mine CROSS JOIN penstock.job WHERE id = 'a'"
            )
            for n in range(6):
                await enqueue(store, QUEUE, [new_job(f"j{n}")])
                await claim(store, QUEUE, 1)
            held_back = await _floor(store)
            await late.commit()
        [found] = await claim(store, QUEUE, 1)
        await store.moves.delete(QUEUE, ["late"])

    assert held_back <= 1
    assert found.id == "late"


async def test_a_released_job_goes_first_also_for_another_process(url: str) -> None:
    """The front is always looked at."""
    store, other = PostgresStore(url), PostgresStore(url)
    async with opened(store), opened(other):
        await enqueue(store, QUEUE, [new_job(f"j{n}") for n in range(12)])
        first = await claim(store, QUEUE, 1)
        for _ in range(5):
            await claim(other, QUEUE, 1)
        await store.moves.settle(QUEUE, [Release(job.id, job.token) for job in first])
        [again] = await claim(other, QUEUE, 1)

    assert again.id == first[0].id


async def test_an_old_snapshot_does_not_make_claims_walk_over_what_is_gone(url: str) -> None:
    """Entries of ended jobs stay in the index while it lasts; few of them are touched."""
    store = PostgresStore(url)
    async with opened(store):
        await enqueue(store, QUEUE, [new_job("first")])
        async with await psycopg.AsyncConnection.connect(url) as old:
            await old.set_isolation_level(psycopg.IsolationLevel.REPEATABLE_READ)
            await old.execute("SELECT 1 FROM penstock.meta")
            for _ in range(10):
                await enqueue(store, QUEUE, [new_job() for _ in range(200)])
                while jobs := await claim(store, QUEUE, 50):
                    await store.moves.settle(QUEUE, [Complete(job.id, job.token) for job in jobs])
            await enqueue(store, QUEUE, [new_job("last")])
            floor = await _floor(store)

    assert floor > 3_000


def test_a_floor_is_not_moved_while_an_older_transaction_runs() -> None:
    """It may still bring a place below."""
    known = Hints()
    nothing: list[int | None] = [None] * 10
    known.peeked(100, 50, 60, nothing)
    known.peeked(200, 55, 70, nothing)
    held_back = known.floors[5]
    known.peeked(200, 60, 80, nothing)

    assert held_back == 0
    assert known.floors[5] == 100


async def test_pruning_goes_on_where_it_stopped_and_then_looks_at_all(url: str) -> None:
    """What came in behind its place meanwhile is met once the rest is done."""
    store = PostgresStore(url)
    async with opened(store), await psycopg.AsyncConnection.connect(url, autocommit=True) as operator:
        await enqueue(store, QUEUE, [new_job(name) for name in "abcde"])
        jobs = await claim(store, QUEUE, 5)
        await store.moves.settle(QUEUE, [Complete(job.id, job.token) for job in jobs])
        await operator.execute("UPDATE penstock.done SET prune_at = ascii(id)")
        gone = [await store.moves.prune(QUEUE, 2)]
        await operator.execute("UPDATE penstock.done SET prune_at = 0 WHERE id = 'c'")
        gone += [await store.moves.prune(QUEUE, 2) for _ in range(3)]

    assert gone == [2, 2, 0, 1]
