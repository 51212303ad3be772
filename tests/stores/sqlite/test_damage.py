"""Rows of a file that somebody has damaged are set aside, and work goes on."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from penstock.core.errors import DamagedQueueError, StoreFormatError
from penstock.core.flows import ChildEnding, JobRef
from penstock.core.job import QueueRef
from penstock.core.limits import Declaration, Mode
from penstock.core.moves import Complete
from penstock.core.outcomes import Refusal, Refused
from penstock.core.states import State
from penstock.stores.sqlite import SqliteStore
from penstock.stores.values import Query
from penstock.testing.conformance import aio
from penstock.testing.conformance.arrange import LEASE_MS, claim, enqueue, new_job
from tests.conformance.stores import opened
from tests.kit.waiting import PATIENCE

NOT_UTF8 = "CAST(x'ff80' AS TEXT)"
DAMAGES = [
    ("options", "'{\"no'"),
    ("options", "'[]'"),
    ("options", "x'00'"),
    ("options", NOT_UTF8),
    ("payload", "x'7b7d'"),
    ("payload", NOT_UTF8),
    ("priority", "'high'"),
    ("more", "'{'"),
]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the store's file is."""
    return tmp_path / "jobs.db"


@pytest.fixture
def store(path: Path) -> aio.InLoop:
    """An open store in a file."""
    return aio.InLoop(opened(SqliteStore(path)))


def tamper(path: Path, sql: str, *params: Any) -> None:
    """What somebody does to the file."""
    with closing(sqlite3.connect(path, timeout=PATIENCE)) as connection:
        assert connection.execute(sql, params).rowcount > 0
        connection.commit()


def damage(path: Path, job: str, column: str, value: str) -> None:
    """Spoil a value of a job."""
    tamper(path, f"UPDATE job SET {column} = {value} WHERE id = ?", job)


async def quarantine(store: SqliteStore, queue: QueueRef) -> list[str]:
    """The ids that were set aside."""
    return [each.id for each in await store.quarantine.list_quarantined(queue)]


@pytest.mark.parametrize("column", ["seq", "place", "at_us", "virtual", "lanes", "step_at"])
@pytest.mark.parametrize("value", ["x'fffe'", "'soon'", "1e300"])
async def test_a_queue_whose_own_row_cannot_be_read_is_named(
    store: SqliteStore, path: Path, queue: QueueRef, column: str, value: str
) -> None:
    await enqueue(store, queue, [new_job("a")])
    tamper(path, f"UPDATE queue SET {column} = {value}")

    with pytest.raises(DamagedQueueError, match=f"queue {queue} cannot be read: .* for a number"):
        await claim(store, queue)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("number", "'one'"),
        ("paused_at", "'soon'"),
        ("pause_reason", NOT_UTF8),
        ("declaration", "'{'"),
        ("declaration", NOT_UTF8),
        ("declaration", "5"),
    ],
)
async def test_a_list_of_queues_names_the_damaged_one_and_has_the_others(
    store: SqliteStore, path: Path, queue: QueueRef, column: str, value: str
) -> None:
    other = QueueRef(queue.tenant, f"{queue.name}-other")
    await enqueue(store, queue, [new_job("a")])
    await enqueue(store, other, [new_job("a")])
    tamper(path, f"UPDATE queue SET {column} = {value} WHERE name = ?", queue.name)

    damaged, sound = await store.queues.list_queues(queue.tenant)
    assert (damaged.queue, sound.queue, sound.fault) == (queue, other, None)
    assert f"queue {queue} cannot be read" in (damaged.fault or "")
    with pytest.raises(DamagedQueueError, match=f"queue {queue} cannot be read"):
        await store.queues.find_queue(queue)
    assert [job.id for job in await claim(store, other)] == ["a"]


async def test_a_value_of_a_type_that_its_column_never_has_is_told_as_a_damage(
    store: SqliteStore, path: Path, queue: QueueRef
) -> None:
    """And not as a defect, which would end a worker."""
    await enqueue(store, queue, [new_job("a")])
    [held] = await claim(store, queue)
    damage(path, "a", "cancel_requested", "'soon'")

    with pytest.raises(DamagedQueueError, match=f"queue {queue} has rows that cannot be read"):
        await store.moves.settle(queue, [Complete("a", held.token)])


@pytest.mark.parametrize(("column", "value"), DAMAGES)
async def test_a_job_that_cannot_be_read_keeps_no_other_from_a_claim(
    store: SqliteStore, path: Path, queue: QueueRef, column: str, value: str
) -> None:
    await enqueue(store, queue, [new_job("a"), new_job("b"), new_job("c")])
    damage(path, "b", column, value)
    assert [each.job for each in await store.health.check(queue)] == ["b"]

    jobs = await claim(store, queue, 10)
    assert {job.id for job in jobs} == {"a", "c"}
    assert len({job.token for job in jobs}) == 2
    [entry] = await store.quarantine.list_quarantined(queue)
    assert entry.id == "b"
    assert entry.what.startswith("a record that cannot be read: ")
    assert entry.at > 0
    assert entry.record is not None
    assert b'"task"' in entry.record
    assert entry.payload is not None
    assert await store.reads.counts(queue) == {**dict.fromkeys(State, 0), State.ACTIVE: 2}
    assert await store.health.check(queue) == []
    assert await store.reads.get(queue, ["b"]) == [None]
    for move in (store.moves.cancel, store.moves.delete, store.moves.redrive):
        assert await move(queue, ["b"]) == [Refused(Refusal.MISSING)]


async def test_a_claim_of_nothing_but_damaged_jobs_goes_on_to_the_next(
    store: SqliteStore, path: Path, queue: QueueRef
) -> None:
    await enqueue(store, queue, [new_job("a"), new_job("b"), new_job("c")])
    damage(path, "a", "options", "''")

    claims = await store.moves.claim(queue, worker="w", limit=1, lease_ms=LEASE_MS)
    assert claims.jobs == []
    assert claims.is_more
    assert [job.id for job in await claim(store, queue, 1)] == ["b"]


async def test_a_key_goes_on_behind_a_damaged_job(store: SqliteStore, path: Path, queue: QueueRef) -> None:
    await store.queues.declare(queue, Declaration(mode=Mode.KEYED))
    await enqueue(store, queue, [new_job("a", key="k"), new_job("b", key="k"), new_job("c", key="l")])
    damage(path, "a", "options", "''")

    assert {job.id for job in await claim(store, queue, 10)} == {"b", "c"}
    assert await quarantine(store, queue) == ["a"]
    assert await store.health.check(queue) == []


@pytest.mark.parametrize("by_claim", [True, False])
async def test_an_expired_lease_that_cannot_be_read_keeps_no_other_from_recovery(
    store: SqliteStore, path: Path, queue: QueueRef, by_claim: bool
) -> None:
    await enqueue(store, queue, [new_job("a"), new_job("b")])
    await claim(store, queue, 2)
    damage(path, "a", "options", "'no'")
    await store.clock.advance_clock(LEASE_MS + 1)

    if by_claim:
        expired = (await store.moves.claim(queue, worker="w", limit=1, lease_ms=LEASE_MS)).expired
    else:
        expired = await store.reads.expired(queue)
    assert [lease.id for lease in expired] == ["b"]
    assert await quarantine(store, queue) == ["a"]


async def test_a_running_job_that_was_set_aside_has_lost_its_lease(
    store: SqliteStore, path: Path, queue: QueueRef
) -> None:
    await enqueue(store, queue, [new_job("a")])
    [job] = await claim(store, queue)
    damage(path, "a", "options", "'no'")

    assert await store.quarantine.repair(queue) == 1
    assert await store.quarantine.repair(queue) == 0
    assert await store.moves.settle(queue, [Complete("a", job.token)]) == [Refused(Refusal.LOST)]


async def test_a_page_passes_over_what_cannot_be_read_and_a_single_look_names_it(
    store: SqliteStore, path: Path, queue: QueueRef
) -> None:
    await enqueue(store, queue, [new_job(each) for each in "abc"])
    damage(path, "b", "payload", NOT_UTF8)

    first = await store.reads.find(queue, Query(limit=2))
    assert [job.id for job in first.jobs] == ["c"]
    assert [job.id for job in (await store.reads.find(queue, Query(after=first.next))).jobs] == ["a"]
    with pytest.raises(StoreFormatError, match=r"job b of queue .* cannot be read: its payload is a bytes"):
        await store.reads.get(queue, ["b"])


async def test_a_parent_that_cannot_be_read_stops_no_relay(
    store: SqliteStore, path: Path, queue: QueueRef
) -> None:
    child = JobRef("other", "c")
    await enqueue(store, queue, [new_job("a", awaits=[child])])
    damage(path, "a", "more", "'{'")

    ending = ChildEnding("a", child, State.COMPLETED)
    assert await store.flows.child_ended(queue, [ending]) == [Refused(Refusal.MISSING)]
    assert await quarantine(store, queue) == ["a"]


async def test_a_deleted_entry_is_a_deleted_job_to_the_log(
    store: SqliteStore, path: Path, queue: QueueRef
) -> None:
    await enqueue(store, queue, [new_job("a", idempotency_key="k"), new_job("b")])
    damage(path, "a", "options", "'no'")
    assert await store.quarantine.repair(queue) == 1
    assert await store.moves.enqueue(queue, [new_job("a")]) == [Refused(Refusal.DUPLICATE)]

    assert await store.quarantine.delete_quarantined(queue, ["a", "b", "other"]) == 1
    assert await quarantine(store, queue) == []
    last = (await store.events.read_events(queue))[-1]
    assert (last.move, last.jobs) == ("delete", ["a"])
    assert await store.health.check(queue) == []


async def test_a_queue_is_deleted_with_its_quarantine(
    store: SqliteStore, path: Path, queue: QueueRef
) -> None:
    await enqueue(store, queue, [new_job("a")])
    damage(path, "a", "options", "'no'")
    await store.quarantine.repair(queue)

    contents = await store.queues.delete_queue(queue)
    assert contents is not None
    assert contents.is_empty
    assert await quarantine(store, queue) == []


async def test_an_event_that_cannot_be_read_is_passed_over(
    store: SqliteStore, path: Path, queue: QueueRef, caplog: pytest.LogCaptureFixture
) -> None:
    await enqueue(store, queue, [new_job(str(n)) for n in range(6)])
    tamper(path, "UPDATE event SET move = 'no such move' WHERE seq IN (2, 3)")
    tamper(path, f"UPDATE event SET job = {NOT_UTF8} WHERE seq = 4")

    assert [event.seq for event in await store.events.read_events(queue)] == [1, 5, 6]
    assert [event.seq for event in await store.events.read_events(queue, 1, 2)] == [5]
    assert [each.seq for each in await store.events.damaged_events(queue)] == [2, 3, 4]
    assert [each.seq for each in await store.events.damaged_events(queue, 2, 1)] == [3]
    assert len([each for each in caplog.records if each.message == "event passed over"]) == 3
