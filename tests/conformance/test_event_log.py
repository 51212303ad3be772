"""The event log: nothing missing, nothing twice, in the queue's order."""

from itertools import pairwise

import pytest

from penstock.core.errors import CursorLostError
from penstock.core.events import Event
from penstock.core.job import Options, QueueRef
from penstock.core.moves import Beat, Bury, Complete, Move, Release, Report, Retry
from penstock.core.states import State
from penstock.stores.protocol import Store
from tests.conformance.arrange import (
    FAULT,
    LEASE_MS,
    claim,
    claim_one,
    enqueue,
    new_job,
    record_of,
    settle,
)


async def test_the_story_of_a_job_is_told_in_full(store: Store, queue: QueueRef) -> None:
    """Every transition with its version, from where, to where."""
    await enqueue(store, queue, [new_job("a", delay_ms=1_000, options=Options(max_attempts=2))])
    await store.turn(1_000)
    first = await claim_one(store, queue, worker="w1")
    await settle(store, queue, Retry("a", first.token, 500, FAULT))
    await store.turn(500)
    second = await claim_one(store, queue, worker="w2")
    await store.progress(queue, [Report("a", second.token, b"0.1")])
    await settle(store, queue, Bury("a", second.token, FAULT))
    await store.redrive(queue, ["a"])
    await store.cancel(queue, ["a"])
    await store.delete(queue, ["a"])
    events = await store.events(queue)

    told = [
        (event.seq, event.version, event.drive, event.move, event.source, event.target) for event in events
    ]
    assert told == [
        (1, 1, 1, Move.ENQUEUE, None, State.DELAYED),
        (2, 2, 1, Move.PROMOTE, State.DELAYED, State.PENDING),
        (3, 3, 1, Move.CLAIM, State.PENDING, State.ACTIVE),
        (4, 4, 1, Move.RETRY, State.ACTIVE, State.DELAYED),
        (5, 5, 1, Move.PROMOTE, State.DELAYED, State.PENDING),
        (6, 6, 1, Move.CLAIM, State.PENDING, State.ACTIVE),
        (7, 7, 1, Move.PROGRESS, State.ACTIVE, State.ACTIVE),
        (8, 8, 1, Move.BURY, State.ACTIVE, State.DEAD),
        (9, 9, 2, Move.REDRIVE, State.DEAD, State.PENDING),
        (10, 10, 2, Move.CANCEL, State.PENDING, State.CANCELLED),
        (11, 11, 2, Move.DELETE, State.CANCELLED, None),
    ]
    assert all(event.job == "a" and event.task == "task" for event in events)
    assert [event.attempt for event in events if event.move in {Move.CLAIM, Move.RETRY, Move.BURY}] == [
        1,
        1,
        2,
        2,
    ]
    assert [event.worker for event in events if event.move is Move.CLAIM] == ["w1", "w2"]
    assert all(earlier.at <= later.at for earlier, later in pairwise(events))


async def test_numbers_and_versions_have_no_gaps(store: Store, queue: QueueRef) -> None:
    """Over batches, refusals and several jobs."""
    await enqueue(store, queue, [new_job(f"j{n}") for n in range(10)])
    for _ in range(3):
        held = await claim(store, queue, 7)
        await store.settle(queue, [Release(job.id, job.token) for job in held] + [Release("j0", "stale")])
        await store.enqueue(queue, [new_job("j0")])
    events = await store.events(queue)
    versions: dict[str, list[int]] = {}
    for event in events:
        versions.setdefault(event.job or "", []).append(event.version or 0)

    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert all(found == list(range(1, len(found) + 1)) for found in versions.values())
    assert await store.event_range(queue) == (1, len(events))


async def test_what_changes_nothing_writes_nothing(store: Store, queue: QueueRef) -> None:
    """Heartbeats, refusals, repeats and a second cancel."""
    job = new_job("a")
    await store.enqueue(queue, [job])
    held = await claim_one(store, queue)
    await store.cancel(queue, ["a"])
    before = await store.event_range(queue)
    await store.heartbeat(queue, [Beat("a", held.token)], LEASE_MS)
    await store.cancel(queue, ["a", "nobody"])
    await store.enqueue(queue, [job, new_job("a")])
    await store.settle(queue, [Complete("a", "stale")])
    await store.redrive(queue, ["a"])
    await store.delete(queue, ["a"])
    await store.promote(queue)
    await store.prune(queue)
    await store.pause(queue, None)

    assert await store.event_range(queue) == before


async def test_a_cursor_reads_page_by_page(store: Store, queue: QueueRef) -> None:
    """And goes on where it stopped when more has come."""
    await enqueue(store, queue, [new_job(f"j{n}") for n in range(7)])
    pages: list[list[Event]] = []
    cursor = 0
    while page := await store.events(queue, after=cursor, limit=3):
        pages.append(page)
        cursor = page[-1].seq
    await enqueue(store, queue, [new_job("later")])
    news = await store.events(queue, after=cursor, limit=3)

    assert [len(page) for page in pages] == [3, 3, 1]
    assert [event.seq for page in pages for event in page] == list(range(1, 8))
    assert [(event.seq, event.job) for event in news] == [(8, "later")]
    assert await store.events(queue, after=8) == []


async def test_a_cursor_before_the_trimmed_part_is_lost(store: Store, queue: QueueRef) -> None:
    """It is told, rather than served with a gap."""
    await enqueue(store, queue, [new_job(f"j{n}") for n in range(6)])
    trimmed = await store.trim(queue, through=4)
    again = await store.trim(queue, through=4)
    kept = await store.events(queue, after=4)

    assert (trimmed, again) == (4, 0)
    assert await store.event_range(queue) == (5, 6)
    assert [event.seq for event in kept] == [5, 6]
    with pytest.raises(CursorLostError):
        await store.events(queue, after=3)
    with pytest.raises(CursorLostError):
        await store.events(queue)


async def test_numbers_go_on_after_everything_was_trimmed(store: Store, queue: QueueRef) -> None:
    """The range is empty then, and says which number was the last."""
    await enqueue(store, queue, [new_job(f"j{n}") for n in range(3)])
    trimmed = await store.trim(queue, through=99)
    empty = await store.event_range(queue)
    await enqueue(store, queue, [new_job("next")])
    events = await store.events(queue, after=3)

    assert trimmed == 3
    assert empty == (4, 3)
    assert [(event.seq, event.job) for event in events] == [(4, "next")]
    assert await store.event_range(queue) == (4, 4)


async def test_a_queue_without_events_has_an_empty_range(store: Store, queue: QueueRef) -> None:
    """Also one that does not exist."""
    unknown = await store.event_range(queue)
    await store.open_queue(queue)

    assert unknown == (1, 0)
    assert await store.event_range(queue) == (1, 0)
    assert await store.events(queue) == []


async def test_progress_is_told_at_most_once_per_second(store: Store, queue: QueueRef) -> None:
    """The value itself is always the newest."""
    await enqueue(store, queue, [new_job("a")])
    held = await claim_one(store, queue)

    async def report(value: bytes) -> None:
        await store.progress(queue, [Report("a", held.token, value)])

    await report(b"1")
    first = await record_of(store, queue, "a")
    await report(b"2")
    second = await record_of(store, queue, "a")
    await store.turn(1_000)
    await report(b"3")
    third = await record_of(store, queue, "a")
    events = await store.events(queue, after=2)

    assert [first.progress, second.progress, third.progress] == [b"1", b"2", b"3"]
    assert [event.version for event in events] == [3, 4]
    assert [first.version, second.version, third.version] == [3, 3, 4]
    assert second.progress_at == first.progress_at


async def test_an_event_reads_back_from_its_own_text(store: Store, queue: QueueRef) -> None:
    """The form that goes into logs and files."""
    await enqueue(store, queue, [new_job("a", key="k", idempotency_key="i")])
    held = await claim_one(store, queue)
    await settle(store, queue, Bury("a", held.token, FAULT))
    events = await store.events(queue)

    assert [Event.from_json(event.to_json()) for event in events] == events
    assert all((event.tenant, event.queue, event.v) == (queue.tenant, queue.name, 1) for event in events)
