"""A lake in an object store, which fails, refuses, or does what it is asked and then says that it did not."""

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
from deltalake import DeltaTable

from penstock.core.events import Event
from penstock.spark import lake as lakes
from penstock.spark.errors import TableError
from penstock.spark.lake.schemas import SHAPES
from tests.kit.waiting import PATIENCE, until
from tests.spark.lake_kit import Row, bring, expected_attempts, expected_jobs, made, text_of_row
from tests.spark.object_store import ObjectStore, object_store
from tests.spark.test_lake_fold import many_histories
from tests.spark.test_lake_tables import batches_of

LAKE = "s3://bucket/lake"


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectStore]:
    """The store, and the environment that says where it is."""
    with object_store() as made_store:
        for name, value in {
            "AWS_ENDPOINT_URL": made_store.url,
            "AWS_ALLOW_HTTP": "true",
            "AWS_ACCESS_KEY_ID": "me",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }.items():
            monkeypatch.setenv(name, value)
        yield made_store


@pytest.fixture(scope="module")
def events() -> list[Event]:
    return many_histories(range(600, 603))


def check(events: Sequence[Event]) -> None:
    """Hold all tables against the events and the fold of them."""
    found = DeltaTable(f"{LAKE}/bronze/events").to_pyarrow_table()
    assert Counter(found["seq"].to_pylist()) == Counter(event.seq for event in events)
    for name, fold in (("attempts", expected_attempts), ("jobs", expected_jobs)):
        columns = SHAPES[name].file_schema.names
        rows = DeltaTable(f"{LAKE}/{SHAPES[name].path}").to_pyarrow_table().select(columns).to_pylist()
        wanted = sorted(text_of_row({each: row.get(each) for each in columns}) for row in fold(events))
        assert sorted(map(text_of_row, rows)) == wanted, name


def batches(events: Sequence[Event]) -> list[list[Row]]:
    return batches_of(events, 3)


def test_tables_in_an_object_store_are_those_of_a_disk(store: ObjectStore, events: list[Event]) -> None:
    bring(made(LAKE), *batches(events), parts=2)

    check(events)
    lakes.optimize(LAKE)
    lakes.vacuum(LAKE, keep_hours=0)
    check(events)
    assert [each.batch for each in lakes.history(LAKE)] == [2, 1, 0]


@pytest.mark.parametrize("only", ["_delta_log", ".parquet"])
def test_requests_that_fail_are_made_again(store: ObjectStore, events: list[Event], only: str) -> None:
    lake = made(LAKE)
    for rows in batches(events):
        store.spoil(only, failing=2)
        bring(lake, rows)

    check(events)


@pytest.mark.parametrize("table", list(SHAPES))
def test_a_commit_whose_answer_is_lost_is_neither_doubled_nor_blamed_on_others(
    store: ObjectStore, events: list[Event], table: str
) -> None:
    first, second, third = batches(events)
    lake = made(LAKE)
    bring(lake, first)

    store.spoil(f"{SHAPES[table].path}/_delta_log", twice=1)
    bring(lake, second)

    assert store.left() == 0
    bring(lake, third)
    check(events)


@pytest.mark.parametrize("table", list(SHAPES))
def test_while_an_answer_is_late_readers_are_right_and_the_commit_counts_once(
    store: ObjectStore, events: list[Event], table: str
) -> None:
    """The write is done long before the driver hears of it."""
    first, second, third = batches(events)
    lake = made(LAKE)
    bring(lake, first)
    rows = DeltaTable(f"{LAKE}/bronze/events").to_pyarrow_table().num_rows
    assert rows == len(first)

    store.spoil(f"{SHAPES[table].path}/_delta_log", late=1)
    with ThreadPoolExecutor(1) as pool:
        late = pool.submit(bring, lake, second)
        asyncio.run(until(lambda: store.left() == 0))
        assert not late.done()
        rows = DeltaTable(f"{LAKE}/bronze/events").to_pyarrow_table().num_rows
        assert rows == len(first) + len(second)
        store.spoil()
        late.result(PATIENCE)

    bring(lake, third)
    check(events)


def test_a_store_that_refuses_is_said_in_a_line_and_a_run_again_is_safe(
    store: ObjectStore, events: list[Event]
) -> None:
    first, second, third = batches(events)
    lake = made(LAKE)
    bring(lake, first)
    store.spoil(denied=True)

    with pytest.raises(TableError, match=r"^s3://bucket/lake/") as told:
        bring(lake, second)
    assert "\n" not in str(told.value)
    with pytest.raises(TableError, match=r"^s3://bucket/lake/"):
        made(LAKE)

    store.spoil()
    bring(made(LAKE), second, third)
    check(events)
