"""Rows of a database that somebody has damaged are set aside, and work goes on."""

import pytest

from penstock.core.errors import DamagedQueueError, StoreFormatError
from penstock.core.flows import ChildEnding, JobRef
from penstock.core.job import QueueRef
from penstock.core.limits import Declaration, Mode
from penstock.core.moves import Complete, Fail
from penstock.core.outcomes import Refusal, Refused
from penstock.core.states import State
from penstock.stores.postgres import PostgresStore
from penstock.stores.values import Query
from penstock.testing.conformance import aio
from penstock.testing.conformance.arrange import FAULT, LEASE_MS, claim, enqueue, new_job
from tests.conformance.stores import opened
from tests.stores.postgres.conftest import run

DAMAGES = [("options", '{"no'), ("options", "[]"), ("more", "{"), ("more", "[]")]


@pytest.fixture
def store(url: str) -> aio.InLoop:
    """An open store in an empty schema."""
    return aio.InLoop(opened(PostgresStore(url)))


async def damage(store: PostgresStore, job: str, column: str, value: str) -> None:
    """Spoil a value of a job."""
    schema = store.backend.address.schema
    await run(
        store.backend.url,
        f"UPDATE \"{schema}\".job SET {column} = '{value}' WHERE id = '{job}'",
    )


async def quarantine(store: PostgresStore, queue: QueueRef) -> list[str]:
    """The ids that were set aside."""
    return [each.id for each in await store.quarantine.list_quarantined(queue)]


@pytest.mark.parametrize(("column", "value"), DAMAGES)
@pytest.mark.parametrize("mode", [None, Mode.KEYED])
async def test_a_job_that_cannot_be_read_keeps_no_other_from_a_claim(
    store: PostgresStore, queue: QueueRef, column: str, value: str, mode: Mode | None
) -> None:
    if mode is not None:
        await store.queues.declare(queue, Declaration(mode=mode))
    await enqueue(store, queue, [new_job(each, key=each) for each in "abc"])
    await damage(store, "b", column, value)
    assert [each.job for each in await store.health.check(queue)] == ["b"]

    assert {job.id for job in await claim(store, queue, 10)} == {"a", "c"}
    [entry] = await store.quarantine.list_quarantined(queue)
    assert (entry.id, entry.payload) == ("b", b'{"n":1}')
    assert entry.what.startswith("a record that cannot be read: ")
    assert entry.at > 0
    assert entry.record is not None
    assert b'"task"' in entry.record
    assert await store.reads.counts(queue) == {**dict.fromkeys(State, 0), State.ACTIVE: 2}
    assert await store.health.check(queue) == []
    assert await store.reads.get(queue, ["b"]) == [None]
    for move in (store.moves.cancel, store.moves.delete, store.moves.redrive):
        assert await move(queue, ["b"]) == [Refused(Refusal.MISSING)]


async def test_a_claim_of_nothing_but_damaged_jobs_goes_on_to_the_next(
    store: PostgresStore, queue: QueueRef
) -> None:
    await enqueue(store, queue, [new_job("a"), new_job("b")])
    await damage(store, "a", "options", "")

    claims = await store.moves.claim(queue, worker="w", limit=1, lease_ms=LEASE_MS)
    assert claims.jobs == []
    assert claims.is_more
    assert [job.id for job in await claim(store, queue, 1)] == ["b"]


async def test_a_key_goes_on_behind_a_damaged_job(store: PostgresStore, queue: QueueRef) -> None:
    await store.queues.declare(queue, Declaration(mode=Mode.KEYED))
    await enqueue(store, queue, [new_job("a", key="k"), new_job("b", key="k")])
    await damage(store, "a", "options", "")

    assert await claim(store, queue, 10) == []
    assert [job.id for job in await claim(store, queue, 10)] == ["b"]
    assert await store.health.check(queue) == []


@pytest.mark.parametrize("column", ["options", "more"])
@pytest.mark.parametrize("by_claim", [True, False])
async def test_an_expired_lease_that_cannot_be_read_keeps_no_other_from_recovery(
    store: PostgresStore, queue: QueueRef, by_claim: bool, column: str
) -> None:
    await enqueue(store, queue, [new_job("a"), new_job("b")])
    await claim(store, queue, 2)
    await damage(store, "a", column, "no")
    await store.clock.advance_clock(LEASE_MS + 1)

    if by_claim:
        expired = (await store.moves.claim(queue, worker="w", limit=1, lease_ms=LEASE_MS)).expired
    else:
        expired = await store.reads.expired(queue)
    assert [lease.id for lease in expired] == ["b"]
    assert await quarantine(store, queue) == ["a"]


async def test_a_job_that_is_damaged_while_it_runs_keeps_no_other_from_settling(
    store: PostgresStore, queue: QueueRef
) -> None:
    parent = JobRef("other", "p")
    await enqueue(store, queue, [new_job(each, parents=[parent]) for each in "ab"])
    tokens = {job.id: job.token for job in await claim(store, queue, 2)}
    await damage(store, "a", "more", "{")

    first, second = await store.moves.settle(
        queue, [Complete("a", tokens["a"]), Fail("b", tokens["b"], FAULT)]
    )
    assert first == Refused(Refusal.LOST)
    assert not isinstance(second, Refused)
    assert await quarantine(store, queue) == ["a"]


async def test_a_page_passes_over_what_cannot_be_read_and_a_single_look_names_it(
    store: PostgresStore, queue: QueueRef
) -> None:
    await enqueue(store, queue, [new_job(each) for each in "abc"])
    await damage(store, "b", "options", "no")

    first = await store.reads.find(queue, Query(limit=2))
    assert [job.id for job in first.jobs] == ["c"]
    assert [job.id for job in (await store.reads.find(queue, Query(after=first.next))).jobs] == ["a"]
    with pytest.raises(StoreFormatError, match=r"job b of queue .* cannot be read"):
        await store.reads.get(queue, ["b"])


async def test_a_parent_that_cannot_be_read_stops_no_relay(store: PostgresStore, queue: QueueRef) -> None:
    child = JobRef("other", "c")
    await enqueue(store, queue, [new_job("a", awaits=[child])])
    await damage(store, "a", "more", "{")

    ending = ChildEnding("a", child, State.COMPLETED)
    assert await store.flows.child_ended(queue, [ending]) == [Refused(Refusal.MISSING)]
    assert await quarantine(store, queue) == ["a"]


async def test_a_deleted_entry_is_a_deleted_job_to_the_log(store: PostgresStore, queue: QueueRef) -> None:
    await enqueue(store, queue, [new_job("a", idempotency_key="k", parents=[JobRef("o", "p")]), new_job("b")])
    await damage(store, "a", "options", "no")
    assert await store.quarantine.repair(queue) == 1
    assert await store.quarantine.repair(queue) == 0
    assert await store.moves.enqueue(queue, [new_job("a")]) == [Refused(Refusal.DUPLICATE)]

    assert await store.quarantine.delete_quarantined(queue, ["a", "b", "other"]) == 1
    assert await quarantine(store, queue) == []
    last = (await store.events.read_events(queue))[-1]
    assert (last.move, last.jobs) == ("delete", ["a"])
    assert [relay.queue for relay in await store.flows.list_relay_entries(queue)] == ["o"]
    assert await store.health.check(queue) == []


async def test_a_queue_is_deleted_with_its_quarantine(store: PostgresStore, queue: QueueRef) -> None:
    await enqueue(store, queue, [new_job("a")])
    await damage(store, "a", "options", "no")
    await store.quarantine.repair(queue)

    contents = await store.queues.delete_queue(queue)
    assert contents is not None
    assert contents.is_empty
    assert await quarantine(store, queue) == []


async def test_an_event_that_cannot_be_read_is_passed_over(
    store: PostgresStore, queue: QueueRef, caplog: pytest.LogCaptureFixture
) -> None:
    await enqueue(store, queue, [new_job(str(n)) for n in range(6)])
    schema = store.backend.address.schema
    await run(
        store.backend.url, f"UPDATE \"{schema}\".event SET move = 'no such move' WHERE seq IN (2, 3, 4)"
    )

    assert [event.seq for event in await store.events.read_events(queue)] == [1, 5, 6]
    first = (await store.events.read_events(queue, 0, 1))[0]
    assert [event.seq for event in await store.events.read_events(queue, first.cursor, 2)] == [5]
    assert [each.seq for each in await store.events.damaged_events(queue)] == [2, 3, 4]
    assert [each.seq for each in await store.events.damaged_events(queue, 2, 1)] == [3]
    assert len([each for each in caplog.records if each.message == "event passed over"]) == 3


async def test_a_list_of_queues_names_the_damaged_one_and_has_the_others(
    store: PostgresStore, queue: QueueRef
) -> None:
    other = QueueRef(queue.tenant, f"{queue.name}-other")
    await enqueue(store, queue, [new_job("a")])
    await enqueue(store, other, [new_job("a")])
    schema = store.backend.address.schema
    await run(
        store.backend.url, f"UPDATE \"{schema}\".queue SET declaration = '5' WHERE name = '{queue.name}'"
    )

    damaged, sound = await store.queues.list_queues(queue.tenant)
    assert (damaged.queue, sound.queue, sound.fault) == (queue, other, None)
    assert f"queue {queue} cannot be read" in (damaged.fault or "")
    with pytest.raises(DamagedQueueError, match=f"queue {queue} cannot be read"):
        await store.queues.find_queue(queue)
