"""The event log: nothing missing, nothing twice, in the queue's order."""

from itertools import pairwise

import msgspec
import pytest

from penstock.core.errors import CursorLostError, InvalidNameError, OptionError
from penstock.core.events import Event
from penstock.core.job import Options, QueueRef
from penstock.core.moves import Beat, Bury, Complete, Move, Release, Report, Retry
from penstock.core.states import State
from penstock.stores.bounds import READER_LEASE_MS
from penstock.stores.protocol import Store
from penstock.stores.values import Reader
from penstock.testing.conformance.arrange import (
    FAULT,
    LEASE_MS,
    claim,
    claim_one,
    enqueue,
    enqueue_each,
    new_job,
    record_of,
    settle,
)
from penstock.testing.conformance.parts import Part, needs


async def test_the_story_of_a_job_is_told_in_full(store: Store, queue: QueueRef) -> None:
    """Every transition with its version, from where, to where."""
    await enqueue(store, queue, [new_job("a", delay_ms=1_000, options=Options(max_attempts=2))])
    await store.clock.advance_clock(1_000)
    first = await claim_one(store, queue, worker="w1")
    await settle(store, queue, Retry("a", first.token, 500, FAULT))
    await store.clock.advance_clock(500)
    second = await claim_one(store, queue, worker="w2")
    await store.moves.progress(queue, [Report("a", second.token, b"0.1")])
    await settle(store, queue, Bury("a", second.token, FAULT))
    await store.moves.redrive(queue, ["a"])
    await store.moves.cancel(queue, ["a"])
    await store.moves.delete(queue, ["a"])
    events = await store.events.read_events(queue)

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
        await store.moves.settle(
            queue, [Release(job.id, job.token) for job in held] + [Release("j0", "stale")]
        )
        await store.moves.enqueue(queue, [new_job("j0")])
    events = await store.events.read_events(queue)
    versions: dict[str, list[int]] = {}
    for event in events:
        versions.setdefault(event.job or "", []).append(event.version or 0)

    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert all(found == list(range(1, len(found) + 1)) for found in versions.values())
    assert await store.events.event_range(queue) == (1, len(events))


async def test_what_changes_nothing_writes_nothing(store: Store, queue: QueueRef) -> None:
    """Heartbeats, refusals, repeats and a second cancel."""
    job = new_job("a")
    await store.moves.enqueue(queue, [job])
    held = await claim_one(store, queue)
    await store.moves.cancel(queue, ["a"])
    before = await store.events.event_range(queue)
    await store.moves.heartbeat(queue, [Beat("a", held.token)], LEASE_MS)
    await store.moves.cancel(queue, ["a", "nobody"])
    await store.moves.enqueue(queue, [job, new_job("a")])
    await store.moves.settle(queue, [Complete("a", "stale")])
    await store.moves.redrive(queue, ["a"])
    await store.moves.delete(queue, ["a"])
    await store.moves.promote(queue)
    await store.moves.prune(queue)
    await store.queues.pause_queue(queue, None)

    assert await store.events.event_range(queue) == before


async def test_a_cursor_reads_page_by_page(store: Store, queue: QueueRef) -> None:
    """And goes on where it stopped when more has come."""
    await enqueue(store, queue, [new_job(f"j{n}") for n in range(7)])
    pages: list[list[Event]] = []
    cursor: str | int = 0
    while page := await store.events.read_events(queue, after=cursor, limit=3):
        pages.append(page)
        cursor = page[-1].cursor
    await enqueue(store, queue, [new_job("later")])
    news = await store.events.read_events(queue, after=cursor, limit=3)

    assert [len(page) for page in pages] == [3, 3, 1]
    assert [event.seq for page in pages for event in page] == list(range(1, 8))
    assert [(event.seq, event.job) for event in news] == [(8, "later")]
    assert await store.events.read_events(queue, after=news[-1].cursor) == []


async def test_a_number_reads_on_like_a_cursor(store: Store, queue: QueueRef) -> None:
    """Also as text, and also beyond the newest event."""
    await enqueue(store, queue, [new_job(f"j{n}") for n in range(3)])
    events = await store.events.read_events(queue)

    assert (
        await store.events.read_events(queue, after=1)
        == await store.events.read_events(queue, after="1")
        == events[1:]
    )
    assert await store.events.read_events(queue, after=1, limit=1) == events[1:2]
    assert await store.events.read_events(queue, after=99) == []


async def test_every_event_has_a_cursor_of_its_own_and_keeps_it(store: Store, queue: QueueRef) -> None:
    """By it the log is read on, from wherever."""
    await enqueue(store, queue, [new_job(f"j{n}") for n in range(3)])
    held = await claim_one(store, queue)
    await settle(store, queue, Complete(held.id, held.token))
    await store.moves.delete(queue, ["j1", "j2"])
    events = await store.events.read_events(queue)
    again = await store.events.read_events(queue, after=events[1].cursor)

    assert len({event.cursor for event in events}) == len(events) == 6
    assert again == events[2:]


async def test_a_cursor_of_another_log_is_lost(store: Store, queue: QueueRef) -> None:
    """As after a failover that lost some events and used their numbers again."""
    other = QueueRef(queue.tenant, "other")
    await enqueue(store, queue, [new_job(f"j{n}") for n in range(3)])
    await enqueue(store, other, [new_job(f"j{n}") for n in range(2)])
    cursors = [event.cursor for event in await store.events.read_events(queue)]

    with pytest.raises(CursorLostError, match=r"event 2 of queue .*other is another one"):
        await store.events.read_events(other, after=cursors[1])
    with pytest.raises(CursorLostError, match="beyond event 2"):
        await store.events.read_events(other, after=cursors[2])
    with pytest.raises(CursorLostError, match="beyond event 0"):
        await store.events.read_events(QueueRef(queue.tenant, "unknown"), after=cursors[0])


@needs(Part.READERS)
@pytest.mark.parametrize("text", ["", "abc", "-1", "1-", "1-xyz", "١"])
async def test_a_text_that_is_no_cursor_is_named(store: Store, queue: QueueRef, text: str) -> None:
    """Nothing is guessed from it."""
    with pytest.raises(OptionError, match="wanted the cursor of an event"):
        await store.events.read_events(queue, after=text)
    with pytest.raises(OptionError, match="wanted the cursor of an event"):
        await store.readers.register_reader(queue, "audit", text)
    with pytest.raises(OptionError, match="wanted the cursor of an event"):
        await store.events.read_events(queue, after=-1)


async def test_a_cursor_before_the_trimmed_part_is_lost(store: Store, queue: QueueRef) -> None:
    """It is told, rather than served with a gap."""
    await enqueue_each(store, queue, [new_job(f"j{n}") for n in range(6)])
    cursors = [event.cursor for event in await store.events.read_events(queue)]
    trimmed = await store.events.trim(queue, through=4)
    again = await store.events.trim(queue, through=4)
    kept = await store.events.read_events(queue, after=4)

    assert (trimmed, again) == (4, 0)
    assert await store.events.event_range(queue) == (5, 6)
    assert [event.seq for event in kept] == [5, 6]
    with pytest.raises(CursorLostError, match="events 4 to 4 of"):
        await store.events.read_events(queue, after=3)
    with pytest.raises(CursorLostError, match="events 1 to 4 of"):
        await store.events.read_events(queue)
    with pytest.raises(CursorLostError, match="events 3 to 4 of"):
        await store.events.read_events(queue, after=cursors[1])
    assert await store.events.read_events(queue, after=cursors[3]) == kept


async def test_what_one_call_wrote_is_trimmed_as_a_whole_or_event_by_event(
    store: Store, queue: QueueRef
) -> None:
    """Never more than was asked for; what is left is told by the range, and read from there on."""
    await enqueue(store, queue, [new_job(f"j{n}") for n in range(6)])
    await enqueue(store, queue, [new_job("last")])
    events = await store.events.read_events(queue)
    trimmed = await store.events.trim(queue, through=4)
    first, last = await store.events.event_range(queue)

    assert (first, last) in {(1, 7), (5, 7)}
    assert trimmed == first - 1
    assert await store.events.read_events(queue, after=first - 1) == events[first - 1 :]
    assert await store.events.trim(queue, through=6) == 7 - first
    assert await store.events.event_range(queue) == (7, 7)
    assert await store.events.read_events(queue, after=events[5].cursor) == events[6:]


async def test_numbers_go_on_after_everything_was_trimmed(store: Store, queue: QueueRef) -> None:
    """The range is empty then, and says which number was the last."""
    await enqueue(store, queue, [new_job(f"j{n}") for n in range(3)])
    trimmed = await store.events.trim(queue, through=99)
    empty = await store.events.event_range(queue)
    await enqueue(store, queue, [new_job("next")])
    events = await store.events.read_events(queue, after=3)

    assert trimmed == 3
    assert empty == (4, 3)
    assert [(event.seq, event.job) for event in events] == [(4, "next")]
    assert await store.events.event_range(queue) == (4, 4)


async def test_a_queue_without_events_has_an_empty_range(store: Store, queue: QueueRef) -> None:
    """Also one that does not exist."""
    unknown = await store.events.event_range(queue)
    await store.queues.open_queue(queue)

    assert unknown == (1, 0)
    assert await store.events.event_range(queue) == (1, 0)
    assert await store.events.read_events(queue) == []


async def test_progress_is_told_at_most_once_per_second(store: Store, queue: QueueRef) -> None:
    """The value itself is always the newest."""
    await enqueue(store, queue, [new_job("a")])
    held = await claim_one(store, queue)

    async def report(value: bytes) -> None:
        await store.moves.progress(queue, [Report("a", held.token, value)])

    await report(b"1")
    first = await record_of(store, queue, "a")
    await report(b"2")
    second = await record_of(store, queue, "a")
    await store.clock.advance_clock(1_000)
    await report(b"3")
    third = await record_of(store, queue, "a")
    events = await store.events.read_events(queue, after=2)

    assert [first.progress, second.progress, third.progress] == [b"1", b"2", b"3"]
    assert [event.version for event in events] == [3, 4]
    assert [first.version, second.version, third.version] == [3, 3, 4]
    assert second.progress_at == first.progress_at


async def test_an_event_reads_back_from_its_own_text(store: Store, queue: QueueRef) -> None:
    """The form that goes into logs and files."""
    await enqueue(store, queue, [new_job("a", key="k", idempotency_key="i")])
    held = await claim_one(store, queue)
    await settle(store, queue, Bury("a", held.token, FAULT))
    events = await store.events.read_events(queue)

    bare = [msgspec.structs.replace(event, cursor="") for event in events]
    assert [Event.from_json(event.to_json()) for event in events] == bare
    assert all((event.tenant, event.queue, event.v) == (queue.tenant, queue.name, 1) for event in events)


@needs(Part.READERS)
async def test_a_reader_is_kept_with_its_place(store: Store, queue: QueueRef) -> None:
    """By name; each further call moves it and renews its lease."""
    await enqueue(store, queue, [new_job(f"j{n}") for n in range(4)])
    events = await store.events.read_events(queue)
    before = await store.clock.now()
    await store.readers.register_reader(queue, "copy", events[0].cursor)
    first = await store.readers.register_reader(queue, "audit", events[1].cursor)
    after = await store.clock.now()
    await store.clock.advance_clock(60_000)
    moved = await store.readers.register_reader(queue, "audit", events[2].cursor)
    kept = await store.readers.list_readers(queue)

    assert (first.name, first.cursor, first.seq) == ("audit", events[1].cursor, 2)
    assert before + READER_LEASE_MS <= first.kept_until <= after + READER_LEASE_MS
    assert (moved.cursor, moved.seq) == (events[2].cursor, 3)
    assert moved.kept_until >= first.kept_until + 60_000
    assert [(each.name, each.seq) for each in kept] == [("audit", 3), ("copy", 1)]
    assert kept[0] == moved
    assert await store.events.read_events(queue, after=moved.cursor) == events[3:]


@needs(Part.READERS)
async def test_a_reader_may_begin_before_the_first_event(store: Store, queue: QueueRef) -> None:
    """Also where there is no queue yet; and a number becomes the cursor of its event."""
    new = await store.readers.register_reader(queue, "audit", 0)
    await enqueue(store, queue, [new_job("a"), new_job("b")])
    events = await store.events.read_events(queue, after=new.cursor)
    numbered = await store.readers.register_reader(queue, "audit", 1)

    assert new.seq == 0
    assert [event.job for event in events] == ["a", "b"]
    assert numbered.cursor == events[0].cursor


@needs(Part.READERS)
async def test_a_place_that_is_lost_is_not_kept(store: Store, queue: QueueRef) -> None:
    """The reader stays where it was."""
    other = QueueRef(queue.tenant, "other")
    await enqueue_each(store, queue, [new_job(f"j{n}") for n in range(4)])
    await enqueue(store, other, [new_job("x")])
    cursors = [event.cursor for event in await store.events.read_events(queue)]
    kept = await store.readers.register_reader(queue, "audit", cursors[3])
    await store.events.trim(queue, through=2)

    with pytest.raises(CursorLostError, match="events 2 to 2 of"):
        await store.readers.register_reader(queue, "audit", cursors[0])
    with pytest.raises(CursorLostError, match="another one"):
        await store.readers.register_reader(other, "audit", cursors[0])
    with pytest.raises(CursorLostError, match="beyond"):
        await store.readers.register_reader(other, "audit", cursors[1])
    assert await store.readers.list_readers(queue) == [kept]
    assert await store.readers.list_readers(other) == []


@needs(Part.READERS)
async def test_what_was_cut_ahead_of_a_reader_is_told_to_it(store: Store, queue: QueueRef) -> None:
    """With the numbers that it did not see."""
    await enqueue_each(store, queue, [new_job(f"j{n}") for n in range(6)])
    reader = await store.readers.register_reader(queue, "audit", 2)
    await store.events.trim(queue, through=5)

    with pytest.raises(CursorLostError, match="events 3 to 5 of"):
        await store.events.read_events(queue, after=reader.cursor)


@needs(Part.READERS)
async def test_a_dropped_reader_is_gone(store: Store, queue: QueueRef) -> None:
    """Once."""
    await store.readers.register_reader(queue, "audit", 0)
    await store.readers.register_reader(queue, "copy", 0)

    assert await store.readers.unregister_reader(queue, "audit")
    assert not await store.readers.unregister_reader(queue, "audit")
    assert [each.name for each in await store.readers.list_readers(queue)] == ["copy"]


@needs(Part.READERS)
async def test_readers_are_forgotten_when_their_lease_is_over(store: Store, queue: QueueRef) -> None:
    """Not a moment before, and none that was renewed."""
    await store.readers.register_reader(queue, "gone", 0)
    await store.readers.register_reader(queue, "renewed", 0)
    await store.clock.advance_clock(READER_LEASE_MS - 60_000)
    early = await store.readers.remove_expired_readers(queue)
    await store.readers.register_reader(queue, "renewed", 0)
    await store.clock.advance_clock(60_000)
    listed = await store.readers.list_readers(queue)

    assert early == 0
    assert [each.name for each in listed] == ["gone", "renewed"]
    assert await store.readers.remove_expired_readers(queue) == 1
    assert [each.name for each in await store.readers.list_readers(queue)] == ["renewed"]


@needs(Part.READERS)
async def test_readers_belong_to_their_queue(store: Store, queue: QueueRef) -> None:
    """The same name elsewhere is another reader."""
    other = QueueRef(queue.tenant, "other")
    await store.readers.register_reader(queue, "audit", 0)
    unknown: list[Reader] = await store.readers.list_readers(other)
    await store.readers.register_reader(other, "audit", 0)
    await store.readers.unregister_reader(queue, "audit")

    assert unknown == []
    assert [each.name for each in await store.readers.list_readers(other)] == ["audit"]


@needs(Part.READERS)
@pytest.mark.parametrize("name", ["", "a b", "a/b", "-a", "x" * 129])
async def test_a_reader_has_a_name_like_any_other(store: Store, queue: QueueRef, name: str) -> None:
    """What cannot be one is refused."""
    with pytest.raises(InvalidNameError, match="reader"):
        await store.readers.register_reader(queue, name, 0)

    assert await store.readers.list_readers(queue) == []
