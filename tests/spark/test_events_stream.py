"""The streaming reader of `events`, without Spark: every event once, whatever happens in between."""

import asyncio
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from redis import Redis

from penstock.core.errors import CursorLostError, InvalidNameError, OptionError, UnknownQueueError
from penstock.core.job import QueueRef
from penstock.spark.events.stream import EventsStreamReader
from penstock.stores.protocol import Store
from penstock.testing.conformance.arrange import enqueue, new_job
from tests.spark.conftest import SparkPlace
from tests.spark.events_kit import (
    OTHER,
    QUEUE,
    fill,
    jobs_of,
    micro_batches,
    only_postgres,
    only_valkey,
    rows,
    stream,
)

Start = Callable[..., EventsStreamReader]
ALL = ReadAllAvailable()


@pytest.fixture
def start(place: SparkPlace) -> Iterator[Start]:
    """Readers of the place's streams, stopped after the test."""
    started: list[EventsStreamReader] = []

    def begin(**options: Any) -> EventsStreamReader:
        started.append(stream(place, **options))
        return started[-1]

    yield begin
    for each in started:
        each.stop()


def test_a_stream_has_what_is_there_and_what_comes(place: SparkPlace, start: Start) -> None:
    """And the same offset again while there is nothing new."""
    fill(place, "a", "b")
    reader = start()
    first = reader.latestOffset(reader.initialOffset(), ALL)
    fill(place, "c")
    second = reader.latestOffset(first, ALL)

    assert jobs_of(rows(reader, reader.partitions(reader.initialOffset(), first))) == ["a", "b"]
    assert jobs_of(rows(reader, reader.partitions(first, second))) == ["c"]
    assert reader.latestOffset(second, ALL) is second
    assert list(reader.partitions(second, second)) == []


def test_a_stream_may_begin_with_what_comes(place: SparkPlace, start: Start) -> None:
    """Only queues that come later are read from their beginning."""
    fill(place, "a", "b")
    reader = start(startingOffsets="latest")
    begun = reader.initialOffset()
    fill(place, "c")
    fill(place, "x", "y", queue=OTHER)

    assert [jobs_of(found) for found in micro_batches(reader, begun)] == [["x", "y", "c"]]


def test_queues_that_are_named_have_to_be_there(place: SparkPlace, start: Start) -> None:
    """Others do not matter to it."""
    fill(place, "a")
    fill(place, "x", queue=OTHER)

    assert [jobs_of(found) for found in micro_batches(start(queues="other"))] == [["x"]]
    with pytest.raises(UnknownQueueError, match="no queue 'nobody' of tenant default; there are: other, q"):
        start(queues="q,nobody").initialOffset()


def test_a_batch_is_no_larger_than_it_may_be_and_fair(place: SparkPlace, start: Start) -> None:
    """A queue with much to read does not keep the others waiting."""
    fill(place, *(f"j{n}" for n in range(20)))
    fill(place, "x", "y", queue=OTHER)
    reader = start(maxEventsPerTrigger=6)
    found = micro_batches(reader)

    assert reader.getDefaultReadLimit() == ReadMaxRows(6)
    assert [len(each) for each in found] == [6, 6, 6, 4]
    assert [row["job"] for row in found[0] if row["queue"] == "other"] == ["x", "y"]
    assert jobs_of([row for each in found for row in each]) == ["x", "y", *(f"j{n}" for n in range(20))]


def test_spark_may_ask_for_everything_nonetheless(place: SparkPlace, start: Start) -> None:
    """Its word goes before the option."""
    fill(place, "a", "b", "c")
    reader = start(maxEventsPerTrigger=1)
    begun = reader.initialOffset()

    assert len(rows(reader, reader.partitions(begun, reader.latestOffset(begun, ALL)))) == 3


def test_what_is_available_now_is_what_was_when_it_was_asked(place: SparkPlace, start: Start) -> None:
    """In as many batches as it takes; not what comes meanwhile, nor new queues."""
    fill(place, *(f"j{n}" for n in range(5)))
    reader = start(maxEventsPerTrigger=2)
    reader.prepareForTriggerAvailableNow()
    fill(place, "later")
    fill(place, "x", queue=OTHER)
    found = micro_batches(reader)

    assert [jobs_of(each) for each in found] == [["j0", "j1"], ["j2", "j3"], ["j4"]]


def test_a_batch_planned_again_after_a_crash_is_the_same(place: SparkPlace, start: Start) -> None:
    """Also the first one, whose start is found anew and elsewhere by then."""
    fill(place, "a")
    before = start(startingOffsets="latest")
    begun = before.initialOffset()
    fill(place, "b", "c")
    fill(place, "x", queue=OTHER)
    end = before.latestOffset(begun, ALL)
    first = rows(before, before.partitions(begun, end))
    before.stop()
    fill(place, "d")
    after = start(startingOffsets="latest")
    again = rows(after, after.partitions(after.initialOffset(), end))

    assert jobs_of(first) == ["x", "b", "c"]
    assert again == first
    assert [jobs_of(found) for found in micro_batches(after, end)] == [["d"]]


def test_a_query_goes_on_from_its_checkpoint(place: SparkPlace, start: Start) -> None:
    """As another process, with a reader that was pickled."""
    fill(place, "a", "b")
    before = start()
    end = before.latestOffset(before.initialOffset(), ALL)
    before.stop()
    fill(place, "c")
    copied: EventsStreamReader = pickle.loads(pickle.dumps(before))
    try:
        found = micro_batches(copied, end)
    finally:
        copied.stop()

    assert [jobs_of(each) for each in found] == [["c"]]


def test_a_checkpoint_of_another_queue_is_refused(place: SparkPlace, start: Start) -> None:
    """By what is asked for, and by the log itself."""
    fill(place, "a", "b")
    fill(place, "x", "y", queue=OTHER)
    reader = start(queues="q")
    end = reader.latestOffset(reader.initialOffset(), ALL)
    forged = {**end, "queues": {"default/other": end["queues"]["default/q"]}}
    gone = {**end, "queues": {"default/gone": end["queues"]["default/q"]}}

    with pytest.raises(
        OptionError, match="queues: found 'other', wanted also default/q, which the checkpoint is of"
    ):
        start(queues="other").latestOffset(end, ALL)
    with pytest.raises(CursorLostError, match=r"another one|made anew"):
        start().latestOffset(forged, ALL)
    with pytest.raises(CursorLostError, match="queue default/gone of the offset is not in the store"):
        start().latestOffset(gone, ALL)
    with pytest.raises(OptionError, match="checkpoint"):
        start().latestOffset({"q": 5}, ALL)


@only_valkey
def test_a_queue_that_was_lost_and_made_anew_is_another_one(place: SparkPlace, start: Start) -> None:
    """Though it may have as many events by then."""
    fill(place, "a")
    reader = start()
    begun = reader.initialOffset()
    end = reader.latestOffset(begun, ALL)
    reader.stop()

    with Redis.from_url(place.url.replace("penstock:secret@", "")) as operator:
        operator.flushall()
    fill(place, "a")
    for act in (lambda: start().latestOffset(end, ALL), lambda: start().partitions(begun, end)):
        with pytest.raises(CursorLostError, match="queue default/q was lost and made anew"):
            act()


def test_a_stream_registers_and_its_place_moves_on(place: SparkPlace, start: Start) -> None:
    """With the first batch that is done, by a name that its checkpoint knows; also of the last batch."""
    fill(place, "a", "b")
    reader = start(maxEventsPerTrigger=1)
    first = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
    reader.stop()
    begun = _readers(place)
    second = reader.latestOffset(first, reader.getDefaultReadLimit())
    reader.stop()
    moved = _readers(place)
    reader.latestOffset(second, reader.getDefaultReadLimit())
    reader.stop()
    again = start()
    again.commit(second)
    again.stop()

    # A query that is refused before its first batch is done holds back no retention.
    assert begun == []
    assert [(each.name, each.seq) for each in moved] == [(first["reader"], 1)]
    assert [(each.name, each.seq) for each in _readers(place)] == [(first["reader"], 2)]


def test_a_stream_tells_how_far_it_is_behind(place: SparkPlace, start: Start) -> None:
    """In what Spark shows as the latest offset in the progress of a query."""
    reader = start(maxEventsPerTrigger=2)
    fill(place, "a", "b", "c")
    begun = reader.initialOffset()
    assert reader.reportLatestOffset() is None

    first = reader.latestOffset(begun, reader.getDefaultReadLimit())
    behind = reader.reportLatestOffset()
    second = reader.latestOffset(first, reader.getDefaultReadLimit())
    none = reader.reportLatestOffset()

    assert behind is not None
    assert none is not None
    assert behind["behind"] == behind["queues"]["default/q"]["behind"] == 1
    assert behind["oldestUnreadMs"] >= 0
    assert behind["queues"]["default/q"]["cursor"] == second["queues"]["default/q"]["cursor"]
    assert none["behind"] == 0
    assert "oldestUnreadMs" not in none


def test_a_start_after_the_newest_event_is_refused(place: SparkPlace, start: Start) -> None:
    """Events that get the numbers up to there would be skipped, and nobody told."""
    newest = fill(place, "a", "b")[-1].seq
    for given in (
        f'{{"q": {newest + 1}}}',
        f'{{"v": 1, "queues": {{"default/q": {{"cursor": "{10**12}"}}}}}}',
    ):
        with pytest.raises(OptionError, match=rf"startingOffsets: .*up to {newest}, the newest event of"):
            start(startingOffsets=given).initialOffset()

    assert micro_batches(start(startingOffsets=f'{{"q": {newest}}}')) == []


def test_a_tenant_without_a_queue_is_refused(place: SparkPlace, start: Start) -> None:
    """Also beside one that is there; `default` need not have any yet."""
    fill(place, "a")
    for tenants in ("acme", "default,acme"):
        with pytest.raises(UnknownQueueError, match="no tenant 'acme' has a queue; there are: default"):
            start(tenants=tenants).initialOffset()


def test_a_stream_has_the_name_that_it_is_given_or_none(place: SparkPlace, start: Start) -> None:
    """A name is checked."""
    fill(place, "a")
    named, nameless = start(readerName="nightly"), start(readerName="none")
    ends = [reader.latestOffset(reader.initialOffset(), ALL) for reader in (named, nameless)]
    for reader, end in zip((named, nameless), ends, strict=True):
        reader.commit(end)
        reader.stop()

    assert [(each.name, each.seq) for each in _readers(place)] == [("nightly", 1)]
    assert [end.get("reader") for end in ends] == ["nightly", None]
    with pytest.raises(InvalidNameError, match="readerName"):
        start(readerName="a b").initialOffset()


def _readers(place: SparkPlace, queue: QueueRef = QUEUE) -> list[Any]:
    return list(place.run(lambda store: store.readers.list_readers(queue)))


@only_postgres
def test_a_writer_that_came_first_and_commits_last_is_not_skipped(place: SparkPlace, start: Start) -> None:
    """The stream waits for it, however much was committed since."""
    fill(place, "a")
    reader = start()
    with psycopg.connect(place.url) as late:
        late.execute("SELECT pg_current_xact_id()")
        late.execute(
            "INSERT INTO penstock.event (queue, stamp, seq, at, move, job, version) "
            "SELECT n, pg_current_xact_id(), nextval(numbers), 0, 'enqueue', 'late', 1 FROM penstock.queue"
        )
        fill(place, "b", "c")
        first = reader.latestOffset(reader.initialOffset(), ALL)
        before = rows(reader, reader.partitions(reader.initialOffset(), first))
        late.commit()
    asyncio.run(_settled(place))
    second = reader.latestOffset(first, ALL)
    after = rows(reader, reader.partitions(first, second))

    assert [row["job"] for row in before] == ["a"]
    assert [row["job"] for row in after] == ["late", "b", "c"]


async def _settled(place: SparkPlace) -> None:
    async with place.open() as store:
        await store.events.event_range(QUEUE)


def test_writers_beside_a_stream_are_read_once_each(place: SparkPlace, start: Start) -> None:
    """Whatever of theirs is committed when it looks."""
    reader = start(maxEventsPerTrigger=7)
    fill(place, "first")
    here, found = reader.initialOffset(), []

    async def write(store: Store) -> None:
        for round_ in range(6):
            await asyncio.gather(*(enqueue(store, QUEUE, [new_job(f"j{round_}-{n}")]) for n in range(5)))

    def step() -> bool:
        nonlocal here
        end = reader.latestOffset(here, reader.getDefaultReadLimit())
        found.extend(rows(reader, reader.partitions(here, end)))
        is_over = end == here
        here = end
        return is_over

    async def both() -> None:
        async with place.open() as store:
            writing = asyncio.ensure_future(write(store))
            while not writing.done():
                await asyncio.to_thread(step)
            await writing
            await store.events.event_range(QUEUE)

    asyncio.run(both())
    while not step():
        pass

    assert len(found) == 31
    assert len({row["cursor"] for row in found}) == 31
    assert {row["job"] for row in found} == {"first", *(f"j{r}-{n}" for r in range(6) for n in range(5))}
