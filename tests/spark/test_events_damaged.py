"""Events that somebody has damaged or taken out of a file: each is told of, and the others are read."""

import sqlite3
from contextlib import closing
from typing import Any

import msgspec
import psycopg
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from penstock.core.errors import CursorLostError
from penstock.stores.redis.keys import keys_of
from tests.spark.conftest import SparkPlace
from tests.spark.events_kit import (
    QUEUE,
    batch_rows,
    fill,
    jobs_of,
    micro_batches,
    not_postgres,
    only_postgres,
    only_sqlite,
    seqs,
    stream,
)


def _spoil(place: SparkPlace, statement: str) -> None:
    with closing(sqlite3.connect(place.url.removeprefix("sqlite:///"))) as file, file:
        file.execute(statement)


def _streamed(place: SparkPlace) -> list[Any]:
    """All rows, an event at a time."""
    reader = stream(place, maxEventsPerTrigger=1, readerName="r")
    try:
        return [row for rows in micro_batches(reader) for row in rows]
    finally:
        reader.stop()


@only_postgres
def test_a_move_that_is_not_known_stops_no_reader_of_a_database(place: SparkPlace) -> None:
    """Wherever it stands. Its record is passed over, and told of by its number."""
    fill(place, "a", "b", "c")
    with psycopg.connect(place.url) as connection:
        connection.execute("UPDATE penstock.event SET move = 'ponder' WHERE seq IN (1, 3)")
    found = _streamed(place)

    assert found == batch_rows(place)
    assert [(row["seq"], row["move"]) for row in found] == [(1, "ponder"), (2, "enqueue"), (3, "ponder")]
    assert [each.seq for each in place.run(lambda store: store.events.read_events(QUEUE))] == [2]
    damaged = place.run(lambda store: store.events.damaged_events(QUEUE))
    assert [each.seq for each in damaged] == [1, 3]
    assert "ponder" in damaged[0].why


def _cut_off(place: SparkPlace) -> None:
    """Take out the events 3 and 4."""
    if place.kind == "sqlite":
        return _spoil(place, "DELETE FROM event WHERE seq > 2")

    async def delete(store: Any) -> None:
        await store.backend.server.command("XDEL", keys_of(QUEUE).events, "3-0", "4-0")

    return place.run(delete)


@only_sqlite
@pytest.mark.parametrize(
    ("change", "problem", "extra"),
    [
        ("error = x'fffe'", "error is no string: see extra", {"error": "//4="}),
        ("version = 'x'", "version is no int32: see extra", {"version": "x"}),
        ("key = x'ff'", "key is no string: see extra", {"key": "/w=="}),
        ("jobs = 'nope', job = NULL", "jobs is no list of ids: see extra", {"jobs": "nope"}),
        ("jobs = '[1]', job = NULL", "jobs is no list of ids: see extra", {"jobs": "[1]"}),
        ("jobs = x'ff', job = NULL", "jobs is no list of ids: see extra", {"jobs": "/w=="}),
    ],
)
def test_only_the_damaged_event_has_a_problem(
    place: SparkPlace, change: str, problem: str, extra: dict[str, str]
) -> None:
    """Wherever it stands; a stream goes on behind it."""
    fill(place, "a", "b", "c")
    _spoil(place, f"UPDATE event SET {change} WHERE seq IN (1, 3)")
    found = _streamed(place)

    assert found == batch_rows(place)
    assert [(row["seq"], row["queue"], row["problem"]) for row in found] == [
        (1, "q", problem),
        (2, "q", None),
        (3, "q", problem),
    ]
    assert [row["extra"] and msgspec.json.decode(row["extra"]) for row in found] == [extra, None, extra]


@not_postgres
@pytest.mark.parametrize("limit", [1, 3, None])
def test_a_tail_that_was_cut_off_is_told(place: SparkPlace, limit: int | None) -> None:
    """As events that are missing; what comes next is read."""
    fill(place, "a", "b", "c", "d")
    _cut_off(place)

    with pytest.raises(CursorLostError, match="events 3 to 4 of queue q are not in the store"):
        batch_rows(place)
    found = batch_rows(place, failOnDataLoss="false")
    assert [(row["move"], row["seq"]) for row in found] == [("enqueue", 1), ("enqueue", 2), ("gap", 3)]

    reader = stream(place, failOnDataLoss="false", **({"maxEventsPerTrigger": limit} if limit else {}))
    try:
        told = [row for rows in micro_batches(reader) for row in rows if row["move"] == "gap"]
        here = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
        fill(place, "e")
        assert [jobs_of(rows) for rows in micro_batches(reader, here)] == [["e"]]
    finally:
        reader.stop()
    assert told[0]["seq"] == 3
    assert told[-1]["cursor"] == "4"


@only_sqlite
@pytest.mark.parametrize("limit", [1, 2, 10])
def test_a_stream_gets_past_events_that_were_taken_out(place: SparkPlace, limit: int) -> None:
    fill(place, "a", "b", "c", "d", "e")
    _spoil(place, "DELETE FROM event WHERE seq IN (1, 3)")
    reader = stream(place, maxEventsPerTrigger=limit, failOnDataLoss="false")
    try:
        found = [row for rows in micro_batches(reader) for row in rows]
    finally:
        reader.stop()

    assert sorted((row["seq"], row["move"]) for row in found) == [
        (1, "gap"),
        (2, "enqueue"),
        (3, "gap"),
        (4, "enqueue"),
        (5, "enqueue"),
    ]


@only_sqlite
def test_a_time_is_found_among_events_that_are_missing_or_damaged(place: SparkPlace) -> None:
    """Rather some events too many than too few."""
    fill(place, "a", "b", "c", "d")
    _spoil(place, "UPDATE event SET at = 'noon' WHERE seq = 3")
    _spoil(place, "DELETE FROM event WHERE seq = 4")

    for time, expected in (("2000-01-01", [1, 2, 3, 4]), ("2999-01-01", [3, 4])):
        found = batch_rows(place, startingTimestamp=time, failOnDataLoss="false")
        assert sorted(seqs(found)) == expected


@only_sqlite
@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("jobs = 'nope'", "malformed"),
        ("move = 'ponder'", "ponder"),
        ("key = x'ff'", "key"),
        ("version = 'x'", "version"),
        ("error = x'fffe'", "error"),
    ],
)
def test_a_damaged_event_is_passed_over_and_told_of_by_its_number(
    place: SparkPlace, change: str, said: str
) -> None:
    """Those before it can be had."""
    fill(place, "a", "b")
    _spoil(place, f"UPDATE event SET {change} WHERE seq = 2")

    assert [each.job for each in place.run(lambda store: store.events.read_events(QUEUE))] == ["a"]
    [damaged] = place.run(lambda store: store.events.damaged_events(QUEUE))
    assert damaged.seq == 2
    assert said in damaged.why
