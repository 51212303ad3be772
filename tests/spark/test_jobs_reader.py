"""The reader of `jobs` and `dlq` as a plain object: its rows, conditions and bound, on every store."""

import pickle
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
)

from penstock.core.errors import UnknownQueueError
from penstock.core.moves import Bury, Complete, Fault
from penstock.spark.jobs import postgres
from penstock.spark.jobs.reader import JobsReader
from penstock.spark.jobs.requests import conditions_of
from penstock.spark.options import read_options
from penstock.spark.schemas import schema_of
from penstock.stores.protocol import Store
from penstock.stores.scan_request import ScanRequest
from penstock.stores.sql_scan import stored_columns
from tests.conformance.having import on
from tests.conformance.stores import STORES
from tests.spark.conftest import SparkPlace
from tests.spark.jobs import FOREIGN, OTHER, QUEUE, fill, moment, new_job, row_of


def reader_of(place: SparkPlace, table: str = "jobs", **raw: str) -> JobsReader:
    return JobsReader(read_options({"url": place.url, "table": table, **raw}, role="read"), table)


def rows_of(reader: JobsReader) -> list[dict[str, Any]]:
    """All rows, read as executors do: by copies that were pickled."""
    partitions = pickle.loads(pickle.dumps(reader.partitions()))
    twin = pickle.loads(pickle.dumps(reader))
    batches = [batch for partition in partitions for batch in twin.read(partition)]
    return [row for batch in batches for row in batch.to_pylist()]


def by_id(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: (row["tenant"], row["queue"], row["id"]))


def ids(rows: Sequence[dict[str, Any]]) -> set[str]:
    found = [row["id"] for row in rows]
    assert len(set(found)) == len(found)
    return set(found)


def test_rows_are_the_records_field_by_field(place: SparkPlace) -> None:
    jobs = place.run(fill)

    rows = rows_of(reader_of(place, tenants="*"))

    assert by_id(rows) == by_id([row_of(job) for job in jobs])


def test_batches_have_exactly_the_declared_schema(place: SparkPlace) -> None:
    place.run(fill)
    for columns in (
        "",
        "queue",
        "parents,id",
        "payload,tenant,result",
        "instant,schedule,state",
        "headers,id",
    ):
        reader = reader_of(place, **({"columns": columns} if columns else {}))
        wanted = schema_of("jobs", columns.split(",") if columns else ())

        batches = [batch for each in reader.partitions() for batch in reader.read(each)]

        assert all(batch.schema.equals(wanted) for batch in batches)
        assert sum(batch.num_rows for batch in batches) == 9


def test_the_default_tenant_is_read_unless_another_is_named(place: SparkPlace) -> None:
    place.run(fill)

    assert {row["tenant"] for row in rows_of(reader_of(place))} == {"default"}
    assert ids(rows_of(reader_of(place, tenant="acme"))) == {"completed"}
    with pytest.raises(UnknownQueueError, match="no tenant 'nobody' has a queue; there are: acme, default"):
        rows_of(reader_of(place, tenant="nobody"))
    assert len(rows_of(reader_of(place, tenants="acme,default"))) == 10


def test_dead_letters_are_a_table_of_their_own(place: SparkPlace) -> None:
    place.run(fill)

    rows = rows_of(reader_of(place, "dlq"))

    assert ids(rows) == {"dead"}
    assert rows[0]["error"] == "first line\nsecond 'line'"
    assert rows_of(reader_of(place, "dlq", until=rows[0]["ended_at"].isoformat())) == []
    assert ids(rows_of(reader_of(place, "dlq", since=rows[0]["ended_at"].isoformat()))) == {"dead"}


OPTIONS: list[tuple[dict[str, str], set[str]]] = [
    ({"queues": "reports"}, {"other"}),
    ({"states": "dead,ACTIVE"}, {"dead", "active"}),
    ({"states": "completed, cancelled"}, {"completed", "cancelled"}),
    ({"states": "failed"}, set()),
    ({"tasks": "bill,print"}, {"dead", "other"}),
    ({"tasks": "bill", "states": "pending"}, set()),
    ({"queue": "mail", "states": "delayed"}, {"delayed", "scheduled"}),
    ({"until": "2001-01-01"}, set()),
]


def test_options_narrow_the_rows(place: SparkPlace) -> None:
    place.run(fill)

    for raw, wanted in OPTIONS:
        assert ids(rows_of(reader_of(place, **raw))) == wanted, raw


def test_since_and_until_are_about_the_enqueue(place: SparkPlace) -> None:
    async def early_and_late(store: Store) -> int:
        await store.moves.enqueue(QUEUE, [new_job("early")])
        await store.clock.advance_clock(60_000)
        middle = await store.clock.now()
        await store.clock.advance_clock(60_000)
        await store.moves.enqueue(QUEUE, [new_job("late")])
        return middle

    middle = place.run(early_and_late)
    text = datetime.fromtimestamp(middle / 1000, UTC).isoformat()

    assert ids(rows_of(reader_of(place, since=text))) == {"late"}
    assert ids(rows_of(reader_of(place, until=text))) == {"early"}


FILTERS: list[tuple[list[Filter], set[str]]] = [
    ([EqualTo(("state",), "dead")], {"dead"}),
    ([In(("id",), ("dead", "other", "nobody's"))], {"dead", "other"}),
    ([EqualTo(("queue",), "reports")], {"other"}),
    ([EqualTo(("tenant",), "acme")], set()),
    ([EqualTo(("key",), "a\\b"), IsNotNull(("key",))], {"pending"}),
    ([EqualTo(("idempotency_key",), "k\\0")], {"pending"}),
    ([EqualTo(("cancel_requested",), True)], set()),
    ([EqualTo(("worker",), "w"), EqualTo(("state",), "active")], {"active"}),
    ([GreaterThan(("priority",), 7)], {"completed", "dead"}),
    ([GreaterThanOrEqual(("priority",), 7), LessThan(("priority",), 9)], {"dead", "active"}),
    ([EqualTo(("max_attempts",), 7)], {"pending"}),
    ([IsNotNull(("ended_at",))], {"completed", "dead", "cancelled"}),
    ([IsNull(("ended_at",)), EqualTo(("task",), "print")], {"other"}),
    ([LessThanOrEqual(("delivery",), 0), EqualTo(("state",), "pending")], {"pending"}),
    ([EqualTo(("task",), "o'clock \\ \0")], set()),
]


def test_filters_of_the_query_reach_the_store(place: SparkPlace) -> None:
    place.run(fill)

    for filters, wanted in FILTERS:
        reader = reader_of(place)
        assert list(reader.pushFilters(filters)) == filters
        assert ids(rows_of(reader)) == wanted, filters


def test_filters_on_times_are_exact_to_the_microsecond() -> None:
    """Stores keep milliseconds; a query may ask for what lies between two of them."""
    millis, micro = 1_700_000_000_123, timedelta(microseconds=1)
    at = moment(millis)
    assert at is not None
    cases: list[tuple[Filter, bool]] = [
        (EqualTo(("enqueued_at",), at), True),
        (EqualTo(("enqueued_at",), at + micro), False),
        (In(("enqueued_at",), (at + micro, at)), True),
        (GreaterThan(("enqueued_at",), at), False),
        (GreaterThan(("enqueued_at",), at - micro), True),
        (GreaterThanOrEqual(("enqueued_at",), at), True),
        (GreaterThanOrEqual(("enqueued_at",), at + micro), False),
        (LessThan(("enqueued_at",), at), False),
        (LessThan(("enqueued_at",), at + micro), True),
        (LessThanOrEqual(("enqueued_at",), at), True),
        (LessThanOrEqual(("enqueued_at",), at - micro), False),
    ]
    for asked, is_meant in cases:
        (condition,) = conditions_of([asked])

        assert condition.holds(millis) == is_meant, asked


def test_filters_that_a_store_cannot_look_at_are_left_to_spark(place: SparkPlace) -> None:
    place.run(fill)
    reader = reader_of(place)
    filters: list[Filter] = [
        StringContains(("id",), "e"),
        Not(EqualTo(("state",), "dead")),
        EqualTo(("payload",), "x"),
        GreaterThan(("id",), "m"),
        EqualTo(("key",), None),
        EqualTo(("nested", "field"), 1),
    ]

    left = list(reader.pushFilters(filters))

    assert left == filters
    assert len(rows_of(reader)) == 9


async def many(store: Store) -> None:
    """Enough jobs to cut them up: some share a millisecond, and there are small queues in between."""
    for queue in (QUEUE, OTHER, FOREIGN):
        for start in range(0, 60 if queue is QUEUE else 7, 20):
            await store.moves.enqueue(queue, [new_job(f"{queue.name}-{start + at}") for at in range(20)])
    jobs = (await store.moves.claim(QUEUE, worker="w", limit=10, lease_ms=60_000)).jobs
    await store.moves.settle(QUEUE, [Complete(job.id, job.token) for job in jobs])


def test_however_it_is_cut_each_job_is_read_once(place: SparkPlace) -> None:
    place.run(many)
    for pieces in (1, 3, 12):
        reader = reader_of(place, minPartitions=str(pieces), tenants="*")

        partitions = reader.partitions()
        rows = rows_of(reader)

        # A Redis store cannot cut between jobs of the same millisecond.
        assert len(partitions) >= min(pieces, 3)
        assert len({(row["tenant"], row["queue"], row["id"]) for row in rows}) == len(rows) == 100


def test_jobs_that_come_after_planning_are_not_read(place: SparkPlace) -> None:
    place.run(many)
    reader = reader_of(place, minPartitions="3")
    partitions = reader.partitions()

    async def go_on(store: Store) -> None:
        await store.moves.enqueue(QUEUE, [new_job("late")])
        await store.moves.delete(QUEUE, ["mail-59"])
        await store.moves.enqueue(QUEUE, [new_job("mail-59")])
        jobs = (await store.moves.claim(QUEUE, worker="w", limit=100, lease_ms=60_000)).jobs
        await store.moves.settle(QUEUE, [Complete(job.id, job.token) for job in jobs])

    place.run(go_on)
    rows = [row for each in partitions for batch in reader.read(each) for row in batch.to_pylist()]

    assert ids([row for row in rows if row["queue"] == "mail"]) == {f"mail-{at}" for at in range(59)}
    assert {row["state"] for row in rows if row["queue"] == "mail"} == {"completed"}


def test_jobs_that_move_between_the_tasks_are_still_read_once(place: SparkPlace) -> None:
    """Through every table and index that a store keeps them in: waiting, running, ended, back again."""
    place.run(many)
    reader = reader_of(place, queue="mail", minPartitions="6")

    async def move(store: Store) -> None:
        first, *rest = (await store.moves.claim(QUEUE, worker="w", limit=8, lease_ms=60_000)).jobs
        fault = Fault("error", "no", "f")
        await store.moves.settle(QUEUE, [Bury(first.id, first.token, fault)])
        await store.moves.settle(QUEUE, [Complete(job.id, job.token) for job in rest])
        await store.moves.redrive(QUEUE, [first.id])

    rows = []
    for each in reader.partitions():
        rows += [row for batch in reader.read(each) for row in batch.to_pylist()]
        place.run(move)

    assert ids(rows) == {f"mail-{at}" for at in range(60)}


def test_what_spark_makes_up_for_no_partitions_is_empty(place: SparkPlace) -> None:
    place.run(lambda store: store.queues.list_queues("default"))
    reader = reader_of(place)

    assert reader.partitions() == []
    assert list(reader.read(InputPartition(None))) == []


def test_large_columns_are_not_fetched_unless_asked_for() -> None:
    """Statements name no other columns than those that were asked for."""
    assert stored_columns(ScanRequest("jobs", ("id", "parents"))) == ["id", "more"]
    assert stored_columns(ScanRequest("jobs", ("payload", "tenant"))) == ["payload", "queue"]


@on([kind for kind in STORES if kind.name == "postgres"])
def test_there_are_as_many_pieces_as_what_is_wanted_takes(
    place: SparkPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def many(store: Store) -> None:
        jobs = [new_job(f"j{n:04}", delay_ms=0 if n % 100 else 3_600_000) for n in range(2_000)]
        for first in range(0, len(jobs), 500):
            await store.moves.enqueue(QUEUE, jobs[first : first + 500])

    place.run(many)
    # The tables may have room that jobs of other tests have left.
    tables = "pg_table_size('penstock.job') + pg_table_size('penstock.done') + pg_table_size('penstock.dead')"
    with psycopg.connect(place.url) as connection:
        [size] = connection.execute(f"SELECT {tables}").fetchone() or [0]
    monkeypatch.setattr(postgres, "PIECE_BYTES", size // 8)
    every, late = reader_of(place), reader_of(place, states="delayed")
    pieces = every.partitions()

    assert len(pieces) in (8, 9)
    assert len(ids(rows_of(every))) == 2_000
    assert len(late.partitions()) < 4
    assert ids(rows_of(late)) == {f"j{n:04}" for n in range(0, 2_000, 100)}
    cut = reader_of(place, states="delayed", minPartitions="3")
    assert len(cut.partitions()) >= 3
    assert ids(rows_of(cut)) == ids(rows_of(late))
