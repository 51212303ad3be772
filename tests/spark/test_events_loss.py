"""Events that are missing, or cannot be read: told, never left out in silence."""

import hashlib
import sqlite3
from collections.abc import Callable
from contextlib import closing
from typing import Any

import msgspec
import psycopg
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from penstock.core.errors import CursorLostError
from penstock.stores.redis.codec.runs import CHECKSUM_LENGTH
from penstock.stores.redis.keys import keys_of
from penstock.testing.conformance.arrange import enqueue, new_job
from tests.spark.conftest import SparkPlace
from tests.spark.events_kit import (
    QUEUE,
    batch,
    batch_rows,
    fill,
    jobs_of,
    micro_batches,
    only_postgres,
    only_sqlite,
    only_valkey,
    rows,
    seqs,
    stream,
    trim,
)

ALL = ReadAllAvailable()


def _begun(place: SparkPlace) -> dict[str, Any]:
    """The offset of a stream that has read two events, of which there are six by now."""
    fill(place, "a", "b")
    reader = stream(place, readerName="none")
    end = reader.latestOffset(reader.initialOffset(), ALL)
    reader.stop()
    fill(place, "c", "d", "e", "f")
    return end


def test_what_was_trimmed_ahead_of_a_stream_stops_it(place: SparkPlace) -> None:
    """With the numbers that it has not seen."""
    start = _begun(place)
    trim(place, 4)
    reader = stream(place)
    try:
        with pytest.raises(CursorLostError, match="events 3 to 4 of queue q were trimmed"):
            reader.latestOffset(start, ALL)
    finally:
        reader.stop()


def test_what_was_trimmed_is_a_row_where_that_is_allowed(place: SparkPlace) -> None:
    """In place of the events, and the rest is read."""
    start = _begun(place)
    trim(place, 4)
    reader = stream(place, failOnDataLoss="false", minPartitions=2)
    try:
        end = reader.latestOffset(start, ALL)
        found = rows(reader, reader.partitions(start, end))
        again = reader.latestOffset(end, ALL)
    finally:
        reader.stop()
    gap, *rest = found

    assert (gap["queue"], gap["move"], gap["seq"], gap["job"]) == ("q", "gap", 3, None)
    assert gap["problem"] == "events 3 to 4 were trimmed before they were read"
    assert jobs_of(rest) == ["e", "f"]
    assert again == end


def test_what_is_trimmed_between_planning_and_reading_is_told(place: SparkPlace) -> None:
    """By the task that was to read it; of all it was to read where all is gone."""
    fill(place, "a", "b", "c", "d")
    strict, lenient = batch(place, minPartitions=2), batch(place, minPartitions=2, failOnDataLoss="false")
    partitions = strict.partitions()
    trim(place, 3)

    with pytest.raises(CursorLostError, match=r"events 1 to 2 of queue q were trimmed.*failOnDataLoss"):
        rows(strict, partitions)
    found = rows(lenient, partitions)
    assert [(row["move"], row["seq"]) for row in found] == [("gap", 1), ("gap", 3), ("enqueue", 4)]
    assert [row["problem"] for row in found[:2]] == [
        "events 1 to 2 were trimmed before they were read",
        "events 3 to 3 were trimmed before they were read",
    ]


def _redis(place: SparkPlace, *command: object) -> None:
    async def run(store: Any) -> None:
        await store.backend.server.command(*command)

    place.run(run)


@only_valkey
def test_an_entry_deleted_in_the_middle_of_a_stream_is_told(place: SparkPlace) -> None:
    """Numbers have no gaps there."""
    fill(place, "a", "b", "c", "d")
    _redis(place, "XDEL", keys_of(QUEUE).events, "2-0", "3-0")

    with pytest.raises(CursorLostError, match="events 2 to 3 of queue q are not in the store"):
        batch_rows(place)
    found = batch_rows(place, failOnDataLoss="false")
    assert [(row["move"], row["seq"]) for row in found] == [("gap", 2), ("enqueue", 1), ("enqueue", 4)]


@only_valkey
def test_a_stream_gets_past_entries_that_were_deleted(place: SparkPlace) -> None:
    """Also where they are more than a batch takes."""
    fill(place, "a", "b", "c", "d")
    _redis(place, "XDEL", keys_of(QUEUE).events, "2-0", "3-0")
    reader = stream(place, maxEventsPerTrigger=1, failOnDataLoss="false")
    here, found = reader.initialOffset(), []
    try:
        while (end := reader.latestOffset(here, reader.getDefaultReadLimit())) != here:
            found += rows(reader, reader.partitions(here, end))
            here = end
    finally:
        reader.stop()

    assert [(row["move"], row["seq"]) for row in found] == [("enqueue", 1), ("gap", 2), ("enqueue", 4)]


@only_valkey
@pytest.mark.parametrize(
    "spoil",
    [
        lambda packed: b"\xc1",
        lambda packed: msgspec.msgpack.encode({"v": 1}),
        lambda packed: msgspec.msgpack.encode([1, "enqueue", "noon"]),
        lambda packed: packed[:-1],
    ],
    ids=["no MessagePack", "no array", "a wrong type", "cut short"],
)
def test_an_entry_that_cannot_be_decoded_is_a_row_with_its_problem(
    place: SparkPlace, spoil: Callable[[bytes], bytes]
) -> None:
    """Wherever it stands; the others are read, and a stream goes on behind it."""
    fill(place, "a", "b", "c")
    for number in (1, 3):
        _respell(place, number, spoil)
    reader = stream(place, maxEventsPerTrigger=1, readerName="r")
    here, found = reader.initialOffset(), []
    try:
        while (end := reader.latestOffset(here, reader.getDefaultReadLimit())) != here:
            found += rows(reader, reader.partitions(here, end))
            here = end
    finally:
        reader.stop()
    whole = batch_rows(place)

    assert whole == found
    assert seqs(found) == [1, 2, 3]
    assert [row["job"] for row in found] == [None, "b", None]
    assert [(row["problem"] or "")[:36] for row in found] == [
        "entry 1-0 of the stream is no event:",
        "",
        "entry 3-0 of the stream is no event:",
    ]
    [kept] = place.run(lambda store: store.readers.list_readers(QUEUE))
    assert kept.seq == 3
    assert [each.seq for each in place.run(lambda store: store.events.read_events(QUEUE))] == [2]
    assert [each.seq for each in place.run(lambda store: store.events.damaged_events(QUEUE))] == [1, 3]


def _respell(place: SparkPlace, number: int, spell: Callable[[bytes], bytes]) -> None:
    """Write an entry of the stream anew, and those behind it as they were."""

    async def run(store: Any) -> None:
        key = keys_of(QUEUE).events
        entries = await store.backend.server.command("XRANGE", key, "-", "+")
        await store.backend.server.command("UNLINK", key)
        for entry, (name, packed) in entries:
            spelled = spell(packed) if entry == b"%d-0" % number else packed
            await store.backend.server.command("XADD", key, entry, name, spelled)

    place.run(run)


def _altered(packed: bytes, alter: Callable[[list[Any]], list[Any]]) -> bytes:
    """A run whose events share other values, with the checksum of these."""
    shared, *rest = msgspec.msgpack.decode(packed[CHECKSUM_LENGTH:])
    body = msgspec.msgpack.encode([alter(shared), *rest])
    return hashlib.sha1(body, usedforsecurity=False).hexdigest()[:CHECKSUM_LENGTH].encode() + body


@only_valkey
@pytest.mark.parametrize("limit", [None, 1, 3])
def test_a_run_that_is_damaged_has_a_row_for_its_range(place: SparkPlace, limit: int | None) -> None:
    """Or one for each batch that it reaches into; the others are read."""
    fill(place, "a")
    place.run(lambda store: enqueue(store, QUEUE, [new_job(f"run{n}") for n in range(4)]))
    fill(place, "b", "c")
    _respell(place, 2, lambda packed: packed[:-1] + b"!")
    whole = batch_rows(place)

    assert [(row["seq"], row["job"]) for row in whole] == [(1, "a"), (2, None), (6, "b"), (7, "c")]
    assert whole[1]["problem"].startswith("events 2 to 5: entry 2-0 of the stream is no event: its checksum")
    assert whole[1]["cursor"] == "5"
    reader = stream(place, **({"maxEventsPerTrigger": limit} if limit else {}))
    try:
        found = [row for batch in micro_batches(reader) for row in batch]
    finally:
        reader.stop()
    assert [row for row in found if row["problem"] is None] == [
        row for row in whole if row["problem"] is None
    ]
    bad = [row for row in found if row["problem"] is not None]
    assert bad[0]["seq"] == 2
    assert bad[-1]["cursor"] == "5"
    assert [row["move"] for row in bad] == [None] * len(bad)


@only_valkey
def test_fields_of_a_later_version_are_kept(place: SparkPlace) -> None:
    """By their place in the record, with moves and states that are not known yet."""
    fill(place, "a")

    def later(known: list[Any]) -> list[Any]:
        known[0], known[1], known[7] = 2, "ponder", "pondering"
        return [*known, *[False] * (26 - len(known)), "blue", {"depth": 3}]

    _respell(place, 1, lambda packed: _altered(packed, later))
    [found] = batch_rows(place)

    assert (found["v"], found["move"], found["to_state"], found["job"]) == (2, "ponder", "pondering", "a")
    assert msgspec.json.decode(found["extra"]) == {"27": "blue", "28": {"depth": 3}}
    assert found["problem"] is None


@only_valkey
def test_a_value_that_fits_no_column_is_kept_aside(place: SparkPlace) -> None:
    """And the rest of its event is read."""
    fill(place, "a", "b")

    def huge(known: list[Any]) -> list[Any]:
        return [*known[:10], 2**40, *known[11:]]

    _respell(place, 2, lambda packed: _altered(packed, huge))
    first, second = batch_rows(place)

    assert (first["priority"], first["problem"], first["extra"]) == (5, None, None)
    assert (second["priority"], second["job"]) == (None, "b")
    assert second["cursor"].startswith("2-")
    assert second["problem"] == "priority is no int32: see extra"
    assert msgspec.json.decode(second["extra"]) == {"priority": 2**40}


@only_sqlite
def test_columns_of_a_later_version_are_kept_in_a_file(place: SparkPlace) -> None:
    """By their names."""
    fill(place, "a", "b")
    with closing(sqlite3.connect(place.url.removeprefix("sqlite:///"))) as file, file:
        file.execute("ALTER TABLE event ADD COLUMN shade TEXT")
        file.execute("UPDATE event SET shade = 'blue' WHERE seq = 2")

    assert [row["extra"] for row in batch_rows(place)] == [None, '{"shade":"blue"}']


@only_postgres
def test_columns_of_a_later_version_are_kept_in_a_database(place: SparkPlace) -> None:
    """By their names."""
    fill(place, "a", "b")
    with psycopg.connect(place.url) as connection:
        connection.execute("ALTER TABLE penstock.event ADD COLUMN shade text")
        connection.execute("UPDATE penstock.event SET shade = 'blue' WHERE seq = 2")

    assert [row["extra"] for row in batch_rows(place)] == [None, '{"shade":"blue"}']
