"""The batch reader of `events`, without Spark: all that is there, or what lies between two offsets."""

import pickle
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from penstock.core.errors import ConfigError, CursorLostError, OptionError, PenstockError, UnknownQueueError
from penstock.core.job import QueueRef
from penstock.core.moves import Bury, Complete
from penstock.stores.protocol import Store
from penstock.testing.conformance.arrange import FAULT, claim_one, enqueue, new_job, settle
from tests.spark.conftest import SparkPlace
from tests.spark.events_kit import (
    OTHER,
    QUEUE,
    batch,
    batch_rows,
    fill,
    jobs_of,
    not_postgres,
    only_postgres,
    only_sqlite,
    only_valkey,
    rows,
    seqs,
)


def _at(milliseconds: int | None) -> datetime | None:
    return None if milliseconds is None else datetime.fromtimestamp(milliseconds / 1000, UTC)


def test_a_row_has_every_field_of_its_event(place: SparkPlace) -> None:
    """Times as times, and what an event does not say as null."""

    async def live(store: Store) -> list[object]:
        await enqueue(
            store, QUEUE, [new_job("a", key="k\\0", idempotency_key="i", delay_ms=500), new_job("b")]
        )
        held = await claim_one(store, QUEUE)
        await settle(store, QUEUE, Complete(held.id, held.token))
        await store.clock.advance_clock(500)
        held = await claim_one(store, QUEUE)
        await settle(store, QUEUE, Bury(held.id, held.token, FAULT))
        await store.moves.delete(QUEUE, ["a", "b"])
        return list(await store.events.read_events(QUEUE))

    events = place.run(live)
    found = batch_rows(place)
    times = {"at", "deadline", "visible_at", "instant"}
    renamed = {"from_state": "source", "to_state": "target"}
    expected = [
        {
            name: _at(getattr(event, name))
            if name in times
            else getattr(event, renamed.get(name, name), None)
            for name in found[0]
        }
        for event in events
    ]

    assert found == expected
    assert found[-1]["jobs"] == ["a", "b"]


def test_all_queues_of_the_tenant_are_read_unless_some_are_named(place: SparkPlace) -> None:
    """And those of other tenants are not."""
    fill(place, "a", "b")
    fill(place, "x", queue=OTHER)
    fill(place, "y", queue=QueueRef("shop", "q"))

    assert jobs_of(batch_rows(place)) == ["x", "a", "b"]
    assert jobs_of(batch_rows(place, queues="q")) == ["a", "b"]
    assert jobs_of(batch_rows(place, tenants="shop")) == ["y"]
    assert [row["tenant"] for row in batch_rows(place, tenants="*")].count("shop") == 1


def test_stretches_together_hold_everything_once(place: SparkPlace) -> None:
    """However many are wanted; and a pickled reader reads the same."""
    fill(place, *(f"j{n}" for n in range(23)))
    fill(place, *(f"x{n}" for n in range(3)), queue=OTHER)
    whole = batch_rows(place)
    reader = batch(place, minPartitions=5)
    partitions = reader.partitions()
    there = pickle.loads(pickle.dumps((reader, partitions)))

    assert 5 <= len(partitions) <= 7
    assert rows(*there) == whole
    assert len(whole) == 26


def test_a_stretch_read_again_is_the_same(place: SparkPlace) -> None:
    """Whatever has come since it was planned."""
    fill(place, "a", "b", "c")
    reader = batch(place)
    partitions = reader.partitions()
    first = rows(reader, partitions)
    fill(place, "later")

    assert rows(reader, partitions) == first
    assert jobs_of(first) == ["a", "b", "c"]


def test_a_batch_lies_between_two_offsets(place: SparkPlace) -> None:
    """Cursors, or numbers; after the first, up to and with the last."""
    cursors = [event.cursor for event in fill(place, "a", "b", "c", "d", "e")]
    fill(place, "x", queue=OTHER)
    start, end = f'{{"q": "{cursors[0]}", "other": "latest"}}', f'{{"default/q": "{cursors[3]}"}}'

    assert jobs_of(batch_rows(place, startingOffsets=start, endingOffsets=end)) == ["b", "c", "d"]
    assert jobs_of(batch_rows(place, startingOffsets='{"q": 4}', queues="q")) == ["e"]
    assert jobs_of(batch_rows(place, endingOffsets='{"q": 2}', queues="q")) == ["a", "b"]
    assert batch_rows(place, startingOffsets="latest") == []
    assert jobs_of(batch_rows(place, startingOffsets="earliest", endingOffsets="latest", queues="other")) == [
        "x"
    ]


def test_a_batch_begins_at_a_time(place: SparkPlace) -> None:
    """With the first event of that time or later."""

    async def live(store: Store) -> int:
        for name in ("a", "b", "c"):
            await enqueue(store, QUEUE, [new_job(name)])
            await store.clock.advance_clock(60_000)
        return (await store.events.read_events(QUEUE))[1].at

    moment = datetime.fromtimestamp(place.run(live) / 1000, UTC)

    assert jobs_of(batch_rows(place, startingTimestamp=moment.isoformat())) == ["b", "c"]
    with pytest.raises(OptionError, match=r"startingTimestamp.*not both"):
        batch(place, startingTimestamp=moment.isoformat(), startingOffsets="latest").partitions()


def test_only_the_columns_that_are_asked_for_are_made(place: SparkPlace) -> None:
    """In the order in which they are asked for."""
    fill(place, "a", "b")
    reader = batch(place, columns="job,seq")
    [found] = [each for partition in reader.partitions() for each in reader.read(partition)]

    assert found.schema == pa.schema([("job", pa.string()), ("seq", pa.int64())])
    assert found.to_pylist() == [{"job": "a", "seq": 1}, {"job": "b", "seq": 2}]


def test_where_there_is_nothing_nothing_is_read(place: SparkPlace) -> None:
    """Neither where there is no queue, nor by a task without a partition."""
    place.run(lambda store: store.queues.list_tenants())

    assert batch(place).partitions() == []
    assert list(batch(place).read(None)) == []  # type: ignore[arg-type] # Spark does so


def test_what_was_trimmed_before_is_not_missed(place: SparkPlace) -> None:
    """A batch of all begins with what is left; one that names its start has lost something."""
    cursors = [event.cursor for event in fill(place, "a", "b", "c")]
    place.run(lambda store: store.events.trim(QUEUE, through=2))

    assert jobs_of(batch_rows(place)) == ["c"]
    with pytest.raises(CursorLostError, match="events 2 to 2 of"):
        batch(place, startingOffsets=f'{{"q": "{cursors[0]}"}}').partitions()


def test_a_batch_that_is_registered_keeps_its_events(place: SparkPlace) -> None:
    """Its place is where it began."""
    cursor = fill(place, "a", "b", "c")[0].cursor
    batch(place, readerName="report", startingOffsets='{"q": 1}').partitions()
    [reader] = place.run(lambda store: store.readers.list_readers(QUEUE))

    assert (reader.name, reader.cursor) == ("report", cursor)


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"queues": "nobody"}, UnknownQueueError, "no queue 'nobody' of tenant default; there are: q"),
        ({"startingOffsets": '{"nobody": 1}'}, UnknownQueueError, "startingOffsets: no queue default/nobody"),
        ({"startingOffsets": "soon"}, OptionError, "startingOffsets: found 'soon', wanted earliest, latest"),
        ({"endingOffsets": "earliest"}, OptionError, "endingOffsets: found 'earliest'"),
        ({"startingOffsets": '{"q": 2}', "endingOffsets": '{"q": 1}'}, OptionError, "not before its start"),
        ({"startingOffsets": '{"q": "1-00000000"}'}, CursorLostError, "another one"),
    ],
)
def test_what_cannot_be_read_is_told(
    place: SparkPlace, options: dict[str, str], error: type[PenstockError], said: str
) -> None:
    """In one sentence, before anything is read."""
    fill(place, "a", "b")
    with pytest.raises(error, match=said):
        batch(place, **options).partitions()


@only_postgres
def test_an_end_that_is_no_event_is_refused(place: SparkPlace) -> None:
    """Numbers alone do not say where in the log that would be."""
    fill(place, "a")
    with pytest.raises(OptionError, match=r"endingOffsets.*the cursor of an event that is there"):
        batch(place, endingOffsets='{"q": 99}').partitions()


@not_postgres
def test_an_end_beyond_the_newest_event_is_the_newest(place: SparkPlace) -> None:
    """Nothing is waited for."""
    fill(place, "a")

    assert seqs(batch_rows(place, endingOffsets='{"q": 99}')) == [1]


@only_sqlite
def test_a_file_that_is_not_there_is_not_made(place: SparkPlace) -> None:
    """Looking at it is no reason."""
    with pytest.raises(ConfigError, match="there is no such file"):
        batch(place).partitions()


@only_valkey
@pytest.mark.parametrize("url", ["redis://me:hush@127.0.0.1:1/0", "postgresql://me:hush@127.0.0.1:1/jobs"])
def test_a_store_that_cannot_be_reached_is_told_of_without_its_password(place: SparkPlace, url: str) -> None:
    """Neither in the message nor in what led to it."""
    away = SparkPlace(place.kind, url)
    with pytest.raises(PenstockError) as caught:
        batch(away).partitions()

    said = "".join(map(str, (caught.value, caught.value.__cause__, repr(batch(away)._options))))
    assert "127.0.0.1" in said
    assert "hush" not in said
