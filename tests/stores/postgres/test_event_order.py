"""The event log under concurrency: a reader misses nothing, whoever commits last."""

import asyncio

import psycopg

from penstock.core.events import Event
from penstock.core.job import QueueRef
from penstock.core.moves import Complete, Move
from penstock.stores.postgres import PostgresStore
from tests.conformance.arrange import claim_one, enqueue, new_job
from tests.conformance.stores import opened

QUEUE = QueueRef("default", "q")


async def _read_on(store: PostgresStore, cursor: str | int) -> tuple[list[Event], str | int]:
    rows = await store.events_with_cursors(QUEUE, cursor)
    return [event for _, event in rows], rows[-1][0] if rows else cursor


async def test_a_writer_that_came_first_and_commits_last_is_not_skipped(url: str) -> None:
    """Its number is lower than those read before it could be seen; the cursor waits for it."""
    store = PostgresStore(url)
    async with opened(store):
        await enqueue(store, QUEUE, [new_job("a"), new_job("b")])
        async with await psycopg.AsyncConnection.connect(url) as late:
            await late.execute("SELECT pg_current_xact_id()")
            await late.execute(
                "INSERT INTO penstock.event (queue, stamp, seq, at, move, job, version) "
                "SELECT n, pg_current_xact_id(), nextval(numbers), 0, 'enqueue', 'late', 1 "
                "FROM penstock.queue"
            )
            await enqueue(store, QUEUE, [new_job("c")])
            before, cursor = await _read_on(store, 0)
            await late.commit()
        after, _ = await _read_on(store, cursor)

    assert [event.job for event in before] == ["a", "b"]
    assert [event.job for event in after] == ["late", "c"]


async def test_versions_come_in_order_also_from_a_transaction_with_a_lower_number(url: str) -> None:
    """It took its number first, waited for the job's row, and wrote the later version."""
    store = PostgresStore(url)
    async with opened(store):
        await enqueue(store, QUEUE, [new_job("a")])
        held = await claim_one(store, QUEUE)
        async with (
            await psycopg.AsyncConnection.connect(url) as bystander,
            await psycopg.AsyncConnection.connect(url) as early,
        ):
            # Three transactions in the order of their numbers: early, bystander, and the cancel.
            await early.execute("SELECT pg_current_xact_id()")
            await bystander.execute("SELECT pg_current_xact_id()")
            await store.cancel(QUEUE, ["a"])
            [statement] = [text for name, text in store._sql.items() if name == "moves/complete"]
            number = await store._number(QUEUE)
            cursor = psycopg.AsyncRawCursor(early)
            await cursor.execute(
                statement.encode(), [str(number), "0", '{"a"}', f'{{"{held.token}"}}', "{NULL}"]
            )
            [(_, state, _)] = await cursor.fetchall()
            await early.commit()
            first, position = await _read_on(store, 0)
            await bystander.commit()
        second, _ = await _read_on(store, position)
        findings = await store.check(QUEUE)

    assert state == "completed"
    assert [event.version for event in first + second] == [1, 2, 3, 4]
    assert [event.move for event in second] == [Move.CANCEL, Move.COMPLETE]
    assert findings == []


async def test_events_are_ordered_by_numbers_not_by_their_digits(url: str) -> None:
    """A transaction with one digit more comes later."""
    store = PostgresStore(url)
    async with opened(store):
        await enqueue(store, QUEUE, [new_job(f"j{n}") for n in range(3)])
        async with await psycopg.AsyncConnection.connect(url) as connection:
            for stamp, seq in (("9", 1), ("10", 2), ("11", 3)):
                await connection.execute(
                    "UPDATE penstock.event SET stamp = %s::text::xid8 WHERE seq = %s", (stamp, seq)
                )
        events = await store.events(QUEUE)

    assert [event.seq for event in events] == [1, 2, 3]


async def test_a_reader_beside_many_writers_sees_every_version_once_and_in_order(url: str) -> None:
    """Whatever it reads while they work is never amended."""
    store = PostgresStore(url)
    async with opened(store):
        ids = [f"j{n}" for n in range(60)]
        writers = asyncio.gather(*(_work(store, ids[n::6]) for n in range(6)))
        seen: list[Event] = []
        cursor: str | int = 0
        while True:
            ended = writers.done()
            events, cursor = await _read_on(store, cursor)
            seen += events
            if ended and not events:
                break
            await asyncio.sleep(0)
        await writers
    versions: dict[str, list[int]] = {}
    for event in seen:
        versions.setdefault(event.job or "", []).append(event.version or 0)

    assert sorted(versions) == sorted(ids)
    assert all(found == [1, 2, 3] for found in versions.values())
    assert sorted(event.seq for event in seen) == list(range(1, len(seen) + 1))


async def _work(store: PostgresStore, ids: list[str]) -> None:
    for each in ids:
        await enqueue(store, QUEUE, [new_job(each)])
        claims = await store.claim(QUEUE, worker="w", limit=5, lease_ms=60_000)
        await store.settle(QUEUE, [Complete(job.id, job.token) for job in claims.jobs])
    while (claims := await store.claim(QUEUE, worker="w", limit=5, lease_ms=60_000)).jobs:
        await store.settle(QUEUE, [Complete(job.id, job.token) for job in claims.jobs])
