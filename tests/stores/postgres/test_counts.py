"""Counts that are added up from events: right in every order of things, and nobody waits for them."""

import asyncio
import random

import psycopg
import pytest

from penstock import Penstock
from penstock.core.job import Job, QueueRef
from penstock.core.moves import Complete
from penstock.core.states import State
from penstock.stores.postgres import PostgresStore
from penstock.stores.postgres.counting import Counting
from penstock.stores.postgres.owner import SchemaOwner
from penstock.stores.postgres.sources import load_migrations
from penstock.testing.conformance.arrange import claim, claim_one, enqueue, new_job
from penstock.testing.conformance.walking import Walk, World
from tests.conformance.stores import opened
from tests.stores.postgres.conftest import run

QUEUE = QueueRef("default", "q")
COUNTED = "SELECT count(*) FROM penstock.queue_count WHERE seq > 0"


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """So few events are added up at a time that every test has several batches."""
    monkeypatch.setattr("penstock.stores.postgres.counting.FOLD_LIMIT", 3)
    monkeypatch.setattr("penstock.stores.postgres.counting._ROUNDS", 2_000)


async def counted(store: PostgresStore) -> dict[State, int]:
    """The counts that are not zero."""
    return {state: many for state, many in (await store.reads.counts(QUEUE)).items() if many}


@pytest.mark.usefixtures("small_batches")
async def test_counts_in_small_batches_walk_beside_the_reference(url: str) -> None:
    store = PostgresStore(url)
    async with opened(store):
        for seed in range(3):
            await Walk(World(store, seed), QueueRef("default", f"walk-{seed}")).run(150)


@pytest.mark.usefixtures("small_batches")
async def test_several_processes_add_up_the_same_events_once(url: str) -> None:
    """While others work on the queue, trim its log, and look at it."""
    store = PostgresStore(url)
    other, third = store.clone(), store.clone()
    async with opened(store), opened(other), opened(third):
        number = await store.backend.open_number(QUEUE)
        chance = random.Random(1)

        async def work(each: PostgresStore, name: str) -> None:
            for turn in range(12):
                ids = [f"{name}-{turn}-{n}" for n in range(4)]
                await enqueue(each, QUEUE, [new_job(id_) for id_ in ids])
                taken = await claim(each, QUEUE, limit=2)
                await each.moves.settle(QUEUE, [Complete(job.id, job.token) for job in taken])
                await each.moves.delete(QUEUE, chance.sample(ids, 3))

        async def fold(each: PostgresStore) -> None:
            counting = Counting(each.backend)
            for _ in range(40):
                await counting.fold(number)

        async def trim(each: PostgresStore) -> None:
            for _ in range(10):
                first, last = await each.events.event_range(QUEUE)
                await each.events.trim(QUEUE, through=(first + last) // 2)

        await asyncio.gather(
            work(store, "a"), work(other, "b"), fold(store), fold(other), fold(third), trim(third)
        )
        found = await store.health.check(QUEUE)
        counts = await store.reads.counts(QUEUE)
        page = [job.state for id_ in ("a", "b") for job in await _all_jobs(store, id_)]

    assert found == []
    assert counts == {state: page.count(state) for state in State}
    assert await run(url, COUNTED) == [(1,)]


async def _all_jobs(store: PostgresStore, name: str) -> list[Job]:
    ids = [f"{name}-{turn}-{n}" for turn in range(12) for n in range(4)]
    return [job for job in await store.reads.get(QUEUE, ids) if job is not None]


@pytest.mark.usefixtures("small_batches")
async def test_an_enqueue_that_is_held_open_delays_nobody(url: str) -> None:
    """Counts have everything that was committed, while one transaction keeps its events from being final."""
    app = Penstock(url)
    queue = app.queue("q")

    @queue.task
    async def send(to: str) -> None: ...

    async with app:
        store = app.store
        assert isinstance(store, PostgresStore)
        await send.enqueue("first")
        connection = await psycopg.AsyncConnection.connect(url)
        try:
            await send.enqueue_in(connection, "held")
            # Each of these would wait for as long as the transaction is open, if for any row of its.
            for n in range(6):
                await send.enqueue(str(n))
            job = await claim_one(store, QUEUE)
            await store.moves.settle(QUEUE, [Complete(job.id, job.token)])
            open_counts = await counted(store)
            number = await store.backend.open_number(QUEUE)
            await Counting(store.backend).fold_all(number)
            folded_counts = await counted(store)
            await connection.commit()
        finally:
            await connection.close()
        after = await counted(store)

    assert open_counts == folded_counts == {State.PENDING: 6, State.COMPLETED: 1}
    assert after == {State.PENDING: 7, State.COMPLETED: 1}


@pytest.mark.parametrize("trimmed", [False, True], ids=["whole log", "trimmed log"])
async def test_jobs_from_before_they_were_counted_are_counted(
    url: str, monkeypatch: pytest.MonkeyPatch, *, trimmed: bool
) -> None:
    """The layout before had no counts, and its log may begin late."""
    await run(url, "DROP SCHEMA IF EXISTS older CASCADE")
    schema = f"{url}?schema=older"
    older = load_migrations()[:11]
    with monkeypatch.context() as patched:
        patched.setattr("penstock.stores.postgres.migrate.load_migrations", lambda: older)
        await SchemaOwner(schema).up([])
    await run(
        url,
        "SELECT older.open_queue('default', 'q')",
        "INSERT INTO older.job (queue, priority, max_attempts, place, stamp, enqueued_at, retention_ms, "
        "key_held_ms, state, id, nonce, task, options, payload) "
        "SELECT n, 5, 4, i, '3', 1, 1, 1, 'pending', 'j' || i, 'n', 'send', '{}', '{}' "
        "FROM older.queue, generate_series(1, 3) AS i",
        "INSERT INTO older.event (queue, stamp, seq, at, move, job, version, drive, target, task) "
        "SELECT n, '3', i, 1, 'enqueue', 'j' || i, 1, 1, 'pending', 'send' "
        "FROM older.queue, generate_series(1, 3) AS i",
        "SELECT setval('older.number_1', 3)",
    )
    if trimmed:
        await run(url, "UPDATE older.queue SET trimmed_stamp = '3', trimmed_seq = 2, trimmed = 2")
        await run(url, "DELETE FROM older.event WHERE seq <= 2")
    await SchemaOwner(schema).up([])
    store = PostgresStore(schema)
    async with opened(store):
        before = await counted(store)
        await claim_one(store, QUEUE)
        after = await counted(store)
        found = await store.health.check(QUEUE)
    await run(url, "DROP SCHEMA older CASCADE")

    assert (before, after) == ({State.PENDING: 3}, {State.PENDING: 2, State.ACTIVE: 1})
    assert found == []


async def test_jobs_that_an_older_version_removed_are_counted_anew(url: str) -> None:
    """Its event names many jobs, and nothing says what they were."""
    store = PostgresStore(url)
    async with opened(store):
        await enqueue(store, QUEUE, [new_job("a"), new_job("b"), new_job("c")])
        before = await counted(store)
        await store.moves.delete(QUEUE, ["a", "b"])
        await run(url, "DELETE FROM penstock.removed_count")
        after = await counted(store)
        number = await store.backend.open_number(QUEUE)
        await Counting(store.backend).fold_all(number)
        later = await counted(store)

    assert (before, after, later) == ({State.PENDING: 3}, {State.PENDING: 1}, {State.PENDING: 1})


async def test_wrong_counts_are_found_and_repaired(url: str) -> None:
    store = PostgresStore(url)
    async with opened(store):
        await enqueue(store, QUEUE, [new_job("a"), new_job("b")])
        await Counting(store.backend).fold(await store.backend.open_number(QUEUE))
        await run(url, "UPDATE penstock.queue_count SET pending = pending + 5")
        found = await store.health.check(QUEUE)
        await store.quarantine.repair(QUEUE)
        mended = await store.health.check(QUEUE)
        counts = await counted(store)

    assert [each.what for each in found] == ["the counts say 7 pending jobs, and there are 2"]
    assert (mended, counts) == ([], {State.PENDING: 2})


async def test_a_role_that_may_only_read_gets_counts(url: str) -> None:
    """It cannot add up events for others, and counts the jobs itself where it would have to."""
    store = PostgresStore(url)
    async with opened(store):
        await enqueue(store, QUEUE, [new_job("a"), new_job("b")])
        await store.moves.delete(QUEUE, ["a", "b"])
        await enqueue(store, QUEUE, [new_job("c")])
        await run(
            url,
            "DELETE FROM penstock.removed_count",
            "DO $$ BEGIN CREATE ROLE looker LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$",
            "GRANT USAGE ON SCHEMA penstock TO looker",
            "GRANT SELECT ON ALL TABLES IN SCHEMA penstock TO looker",
        )
    looker = PostgresStore(url.replace("//postgres@", "//looker@"))
    async with opened(looker):
        counts = await counted(looker)

    assert counts == {State.PENDING: 1}
