"""The event log under concurrency: a reader misses nothing, whichever transaction commits last."""

import asyncio

import psycopg
import pytest

from penstock.core.errors import CursorLostError
from penstock.core.events import Event
from penstock.core.job import QueueRef
from penstock.core.moves import Complete, Move
from penstock.maintenance.pruner import Trimmer
from penstock.stores.postgres import PostgresStore
from penstock.stores.values import Holdup
from penstock.stores.wire import CALLS, MEDIA_TYPE
from penstock.testing.conformance.arrange import claim_one, enqueue, new_job
from tests.conformance.stores import opened
from tests.service.kit import GrantedPrincipal, HeaderAuthenticator, asked

QUEUE = QueueRef("default", "q")


async def _read_on(store: PostgresStore, cursor: str | int) -> tuple[list[Event], str | int]:
    events = await store.events.read_events(QUEUE, cursor)
    return events, events[-1].cursor if events else cursor


async def _write_late(store: PostgresStore, late: psycopg.AsyncConnection[tuple[object, ...]]) -> None:
    """The event of job `late`, written by a transaction that took its own number before."""
    await late.execute(
        "INSERT INTO penstock.event (queue, stamp, seq, at, move, job, version) "
        "SELECT n, pg_current_xact_id(), nextval(numbers), 0, 'enqueue', 'late', 1 FROM penstock.queue "
        "WHERE n = %s",
        (await store.backend.open_number(QUEUE),),
    )


async def test_a_writer_that_came_first_and_commits_last_is_not_skipped(url: str) -> None:
    """Its number is lower than those read before it could be seen; the cursor waits for it."""
    store = PostgresStore(url)
    async with opened(store):
        await enqueue(store, QUEUE, [new_job("a"), new_job("b")])
        async with await psycopg.AsyncConnection.connect(url) as late:
            await late.execute("SELECT pg_current_xact_id()")
            await _write_late(store, late)
            await enqueue(store, QUEUE, [new_job("c")])
            before, cursor = await _read_on(store, 0)
            await late.commit()
        after, _ = await _read_on(store, cursor)

    assert [event.job for event in before] == ["a", "b"]
    assert [event.job for event in after] == ["late", "c"]


async def test_the_newest_number_is_found_however_early_its_writer_began(url: str) -> None:
    """Its place in the log is before all that others wrote meanwhile."""
    store = PostgresStore(url)
    async with opened(store):
        await enqueue(store, QUEUE, [new_job()])
        async with await psycopg.AsyncConnection.connect(url) as late:
            await late.execute("SELECT pg_current_xact_id()")
            await enqueue(store, QUEUE, [new_job() for _ in range(200)])
            await _write_late(store, late)
            await late.commit()

        assert await store.events.event_range(QUEUE) == (1, 202)


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
            await store.moves.cancel(QUEUE, ["a"])
            [statement] = [text for name, text in store.backend.sql.items() if name == "moves/complete"]
            number = await store.backend.open_number(QUEUE)
            cursor = psycopg.AsyncRawCursor(early)
            await cursor.execute(
                statement.encode(), [str(number), "0", '{"a"}', f'{{"{held.token}"}}', "{NULL}"]
            )
            [(_, state, *_)] = await cursor.fetchall()
            await early.commit()
            first, position = await _read_on(store, 0)
            await bystander.commit()
        second, _ = await _read_on(store, position)
        findings = await store.health.check(QUEUE)

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
        events = await store.events.read_events(QUEUE)

    assert [event.seq for event in events] == [1, 2, 3]


async def test_nothing_is_trimmed_that_a_reader_has_still_to_read(url: str) -> None:
    """Behind its place events may stand that have lower numbers."""
    store = PostgresStore(url)
    async with opened(store):
        await enqueue(store, QUEUE, [new_job("a")])
        async with await psycopg.AsyncConnection.connect(url) as late:
            await late.execute("SELECT pg_current_xact_id()")
            await enqueue(store, QUEUE, [new_job("b")])
            await _write_late(store, late)
            await late.commit()
        await enqueue(store, QUEUE, [new_job("c")])
        read = await store.events.read_events(QUEUE, limit=2)
        reader = await store.readers.register_reader(QUEUE, "audit", read[-1].cursor)
        while await Trimmer(store, QUEUE, kept=0).tick():
            pass
        kept = await store.events.read_events(QUEUE, reader.cursor)
        rest = await store.events.trim(QUEUE, through=3)
        last = await store.events.read_events(QUEUE, 3)

    assert [(event.job, event.seq) for event in read] == [("a", 1), ("late", 3)]
    assert [(event.job, event.seq) for event in kept] == [("b", 2), ("c", 4)]
    assert rest == 2
    assert [event.job for event in last] == ["c"]


async def test_what_is_left_is_read_from_its_beginning_also_where_its_numbers_are_lower(url: str) -> None:
    """The number behind which all was trimmed stands for that place in the log."""
    store = PostgresStore(url)
    async with opened(store):
        async with await psycopg.AsyncConnection.connect(url) as late:
            await enqueue(store, QUEUE, [new_job("a")])
            await late.execute("SELECT pg_current_xact_id()")
            await enqueue(store, QUEUE, [new_job("b"), new_job("c")])
            await _write_late(store, late)
            await late.commit()
        # In the order of the log: a is 1, late is 4, b is 2, c is 3.
        cursors = [event.cursor for event in await store.events.read_events(QUEUE)]
        blocked = await store.events.trim(QUEUE, through=3)
        async with await psycopg.AsyncConnection.connect(url) as connection:
            await connection.execute(
                "WITH gone AS (DELETE FROM penstock.event WHERE seq = 4 RETURNING *) UPDATE penstock.queue "
                "SET trimmed_stamp = gone.stamp, trimmed_seq = 4, trimmed = 4 FROM gone"
            )
        first, _ = await store.events.event_range(QUEUE)
        events = await store.events.read_events(QUEUE, first - 1)
        behind = await store.events.read_events(QUEUE, cursors[1])
        with pytest.raises(CursorLostError, match="events 2 to 4 of"):
            await store.events.read_events(QUEUE, cursors[0])

    assert blocked == 1
    assert [event.job for event in events] == [event.job for event in behind] == ["b", "c"]


async def test_who_holds_readers_back_is_named(url: str) -> None:
    """With how long; what it writes elsewhere does not matter. One that only reads holds nobody back."""
    store = PostgresStore(url)
    async with opened(store):
        async with await psycopg.AsyncConnection.connect(url, application_name="report") as other:
            await other.execute("SELECT 1 FROM penstock.meta")
            free = await store.holdup()
            await other.execute("SELECT pg_current_xact_id()")
            held = await store.holdup()
            pid = other.info.backend_pid
        after = await store.holdup()

    assert free is None
    assert held is not None
    assert (held.who or "").startswith(f"process {pid} of postgres on database postgres (report)")
    assert (held.age_ms or -1) >= 0
    assert after is None


async def test_over_http_only_an_operator_of_all_learns_who_holds_readers_back(url: str) -> None:
    """The session is one of the server, of whatever tenant or program; all others learn for how long."""
    people = {
        "acme": GrantedPrincipal(),
        "some": GrantedPrincipal(tenant="*", tenants=("acme", "globex")),
        "all": GrantedPrincipal(tenant="*", tenants=("*",)),
    }
    call = CALLS["holdup"]
    holdups: dict[str, Holdup] = {}
    async with (
        asked(PostgresStore(url), authenticator=HeaderAuthenticator(**people)) as client,
        await psycopg.AsyncConnection.connect(url, application_name="report") as other,
    ):
        await other.execute("SELECT pg_current_xact_id()")
        for name in people:
            headers = {"content-type": MEDIA_TYPE, "x-tenant": name}
            body = call.encode(None, None, {})
            answer = await client.post("/v1/store/holdup", content=body, headers=headers)
            holdups[name] = call.decode_answer(answer.content)

    assert [holdups[name].who for name in ("acme", "some")] == [None, None]
    assert "report" in (holdups["all"].who or "")
    assert all((each.age_ms or -1) >= 0 for each in holdups.values())


async def test_a_role_that_may_not_see_all_of_another_is_told_who_it_is(url: str) -> None:
    """But not since when, which the server keeps from it."""
    async with opened(PostgresStore(url)):
        pass
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as owner:
        await owner.execute(
            "DROP ROLE IF EXISTS guest; CREATE ROLE guest LOGIN; GRANT USAGE ON SCHEMA penstock TO guest; "
            "GRANT ALL ON ALL TABLES IN SCHEMA penstock TO guest; "
            "GRANT ALL ON ALL SEQUENCES IN SCHEMA penstock TO guest"
        )
        try:
            store = PostgresStore(url.replace("postgres@", "guest@"))
            async with opened(store), await psycopg.AsyncConnection.connect(url) as other:
                await other.execute("SELECT pg_current_xact_id()")
                held = await store.holdup()
                pid = other.info.backend_pid
        finally:
            await owner.execute("DROP OWNED BY guest; DROP ROLE guest")

    assert held == Holdup(f"process {pid} of postgres on database postgres", None)


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
        claims = await store.moves.claim(QUEUE, worker="w", limit=5, lease_ms=60_000)
        await store.moves.settle(QUEUE, [Complete(job.id, job.token) for job in claims.jobs])
    while (claims := await store.moves.claim(QUEUE, worker="w", limit=5, lease_ms=60_000)).jobs:
        await store.moves.settle(QUEUE, [Complete(job.id, job.token) for job in claims.jobs])
