"""From Arrow columns to payloads and options: strict JSON by rule, and every kind of bad row."""

import math
import re
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema

from penstock.core.job import NewJob, QueueRef
from penstock.core.limits import Declaration, Mode
from penstock.core.payload import PAYLOAD_LIMIT
from penstock.spark.options import read_options
from penstock.spark.sink.columns import columns_of
from penstock.spark.sink.rows import Rows
from penstock.spark.sink.values import Flaws, shown
from penstock.stores.values import QueueInfo

QUEUE = QueueRef("default", "mail")
KEYED = QueueRef("default", "keyed")
GIVEN = {"url": "sqlite:///jobs.db", "queue": "mail", "task": "send", "duplicates": "allow"}
QUEUES = {
    QUEUE: QueueInfo(QUEUE, 1),
    KEYED: QueueInfo(KEYED, 2, declaration=Declaration(mode=Mode.KEYED)),
}


def read(batch: pa.RecordBatch, write_id: str = "w", **options: str) -> tuple[dict[int, NewJob], Flaws]:
    """The jobs of a batch by row, and the flaws of the others."""
    given = read_options(GIVEN | options, role="write")
    rows = Rows(columns_of(from_arrow_schema(batch.schema), given), given, write_id)
    found = rows.read(batch)
    return {at: new for at, _, new in found.jobs(QUEUES)}, found.flaws


def payload_of(**columns: pa.Array) -> Any:
    """The payload of the only row of these columns."""
    jobs, flaws = read(pa.record_batch(columns))
    assert flaws == {}
    return msgspec.json.decode(jobs[0].payload)


def one(value: Any, kind: pa.DataType | None = None) -> pa.Array:
    return pa.array([value], kind)


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (one("grüße\x00"), "grüße\x00"),
        (one(None, pa.string()), None),
        (one(2**63 - 1), 2**63 - 1),
        (one(None, pa.int32()), None),
        (one(True), True),
        (one(0.1), 0.1),
        (one(0.5, pa.float32()), 0.5),
        (one(Decimal("12.50")), "12.50"),
        (one(date(2026, 1, 31)), "2026-01-31"),
        (one(datetime(2026, 1, 31, 12, tzinfo=UTC)), "2026-01-31T12:00:00Z"),
        (
            one(datetime(2026, 1, 31, 12, 0, 0, 123456, tzinfo=UTC), pa.timestamp("us", "Europe/Berlin")),
            "2026-01-31T12:00:00.123456Z",
        ),
        (one(datetime(2026, 1, 31, 12), pa.timestamp("us")), "2026-01-31T12:00:00"),  # noqa: DTZ001 (it has none)
        (one(timedelta(days=1, seconds=90), pa.duration("us")), "P1DT90S"),
        (one(b"\x00\xff"), "AP8="),
        (one([1, None, 3]), [1, None, 3]),
        (one([], pa.list_(pa.int32())), []),
        (one({"b": 1, "a": {"c": None}}), {"a": {"c": None}, "b": 1}),
        (one([("y", 1), ("x", 2)], pa.map_(pa.string(), pa.int32())), {"x": 2, "y": 1}),
        (
            one(
                [{"at": datetime(2026, 1, 1, tzinfo=UTC)}],
                pa.list_(pa.struct([("at", pa.timestamp("us", "Asia/Tokyo"))])),
            ),
            [{"at": "2026-01-01T00:00:00Z"}],
        ),
    ],
)
def test_each_type_has_one_form_in_json(column: pa.Array, expected: Any) -> None:
    """Numbers and text as they are, decimals and times as text, bytes in base64, null as null."""
    assert payload_of(x=column) == {"x": expected}


def test_the_same_row_gives_the_same_bytes() -> None:
    """Neither the order of columns nor that of the entries of a map is part of the work."""
    entries = pa.map_(pa.string(), pa.int32())
    one_way = pa.record_batch({"a": one(1), "b": pa.array([[("x", 1), ("y", 2)]], entries)})
    other = pa.record_batch({"b": pa.array([[("y", 2), ("x", 1)]], entries), "a": one(1)})

    assert read(one_way)[0][0].payload == read(other)[0][0].payload == b'{"a":1,"b":{"x":1,"y":2}}'


def test_a_row_without_arguments_is_an_empty_object() -> None:
    """A task may have none."""
    jobs, _ = read(pa.record_batch({"_priority": one(5)}))

    assert jobs[0].payload == b"{}"


@pytest.mark.parametrize(
    "column",
    [
        pa.array(['{"to": "ada", "n": 1}']),
        pa.array([{"n": 1, "to": "ada"}]),
        pa.array([[("to", "ada")]], pa.map_(pa.string(), pa.string())),
    ],
)
def test_a_column_payload_is_json_a_struct_or_a_map(column: pa.Array) -> None:
    """It is the whole object of arguments."""
    assert payload_of(payload=column)["to"] == "ada"


def test_option_columns_set_what_an_enqueue_can_set() -> None:
    """Null says nothing, so that the default holds."""
    at = datetime(2026, 1, 31, 12, 0, 0, 1, tzinfo=UTC)
    batch = pa.record_batch(
        {
            "_priority": pa.array(["high", None]),
            "_delay": pa.array([Decimal("1.5"), None]),
            "_run_at": pa.array([None, at], pa.timestamp("us", "UTC")),
            "_key": pa.array(["k", None]),
            "_idempotency_key": pa.array(["once", None]),
            "_max_attempts": pa.array([7, None]),
            "_timeout": pa.array([timedelta(seconds=9), None], pa.duration("us")),
            "_retention": pa.array([60, None]),
            "_backoff": pa.array(["spool", None]),
            "_task": pa.array(["other", None]),
            "_id": pa.array(["my-own", None]),
            "_headers": pa.array([[("order", "7")], None], pa.map_(pa.string(), pa.string())),
            "n": pa.array([1, 2]),
        }
    )
    jobs, flaws = read(batch)

    assert flaws == {}
    first, second = jobs[0], jobs[1]
    assert (first.priority, first.delay_ms, first.run_at, first.key, first.task) == (
        7,
        1500,
        None,
        "k",
        "other",
    )
    assert (first.idempotency_key, first.id, first.options.max_attempts) == ("once", "my-own", 7)
    assert (first.headers, second.headers) == ({"order": "7"}, None)
    assert (first.options.timeout_ms, first.options.retention_ms) == (9_000, 60_000)
    assert (second.priority, second.delay_ms, second.key, second.task) == (5, 0, None, "send")
    assert second.run_at == int(at.timestamp() * 1000) + 1
    assert second.options == NewJob(id="", nonce="", task="", payload=b"").options


def test_a_chosen_id_has_the_same_nonce_each_time() -> None:
    """The same work under the same key is the same job to a store; other work is not."""
    made = [
        read(pa.record_batch({"_id": one("a"), "_idempotency_key": one(key), "n": one(n)}))[0][0].nonce
        for key, n in (("k", 1), ("k", 1), ("k", 2), ("l", 1))
    ]

    assert made[0] == made[1]
    assert len(set(made)) == 3


def test_both_zeros_are_one_key_and_one_payload() -> None:
    """As they are one group to Spark; at any depth of a key column, and nowhere else."""
    nested = pa.array([{"x": [0.0]}, {"x": [-0.0]}])
    batch = pa.record_batch(
        {"id": pa.array([0.0, -0.0]), "place": nested, "_task": pa.array(["send", "send"])}
    )
    jobs, flaws = read(batch, keyColumns="id,place", duplicates="refuse")

    assert flaws == {}
    assert jobs[0].idempotency_key == jobs[1].idempotency_key
    assert jobs[0].payload == jobs[1].payload
    other, _ = read(batch, keyColumns="id", duplicates="refuse")
    assert b"-0.0" in other[1].payload


def test_keys_are_of_the_write_the_queue_and_the_key_columns() -> None:
    """Nothing else is in them, and a column of keys wins."""
    batch = pa.record_batch({"n": pa.array([1, 1, 2]), "s": pa.array(["x", "y", "x"])})

    def keys(write_id: str, **options: str) -> list[str | None]:
        jobs, _ = read(batch, write_id, **options)
        return [job.idempotency_key for job in jobs.values()]

    by_n = keys("w", keyColumns="n")
    assert by_n[0] == by_n[1] != by_n[2]
    assert by_n == keys("w", keyColumns="n")
    assert not set(by_n) & set(keys("other", keyColumns="n"))
    assert len(set(keys("w", keyColumns="n,s"))) == 3
    with_column = pa.record_batch({"n": pa.array([1, 2]), "_idempotency_key": pa.array(["mine", None])})
    jobs, _ = read(with_column, keyColumns="n")
    assert jobs[0].idempotency_key == "mine"
    assert (jobs[1].idempotency_key or "").startswith("spark-")


def _wrong_text() -> pa.Array:
    data = pa.py_buffer(b"ok\xff\xfe")
    return pa.Array.from_buffers(pa.string(), 2, [None, pa.py_buffer(b"\0\0\0\0\2\0\0\0\4\0\0\0"), data])


def _maps(*rows: dict[str, str | None]) -> pa.Array:
    return pa.array([list(row.items()) for row in rows], pa.map_(pa.string(), pa.string()))


FAR = pa.array([0, 2**61], pa.int64())


@pytest.mark.parametrize(
    ("columns", "field", "reason"),
    [
        ({"payload": pa.array(["{}", "{"])}, "payload", "payload: found bytes, wanted JSON"),
        ({"payload": pa.array(["{}", "[1]"])}, "payload", "payload: found list, wanted a JSON object"),
        ({"payload": pa.array(["{}", None])}, "payload", "payload: found NoneType, wanted a JSON object"),
        ({"payload": pa.array(["{}", '{"a": 1e999}'])}, "payload", "payload"),
        ({"x": pa.array([0.5, math.nan])}, "x", "x: found no finite number"),
        ({"x": pa.array([[0.5], [1.0, math.inf]])}, "x[1]", r"x\[1\]: found no finite number"),
        ({"x": pa.array([{"y": 0.5}, {"y": -math.inf}])}, "x.y", "x.y: found no finite number"),
        ({"x": _wrong_text()}, "x", "x: found bytes, wanted text in UTF-8"),
        ({"x": FAR.cast(pa.timestamp("us"))}, "x", "x: found a time out of range"),
        ({"x": pa.array(["", "x" * PAYLOAD_LIMIT])}, "payload", f"payload: found .* at most {PAYLOAD_LIMIT}"),
        ({"_queue": pa.array(["mail", "no good"])}, "_queue", "_queue: found 'no good', wanted 1 to 128"),
        ({"_tenant": pa.array(["default", ""])}, "_tenant", "_tenant: found ''"),
        ({"_task": pa.array(["send", "a/b"])}, "_task", "_task: found 'a/b'"),
        ({"_priority": pa.array([0, 10])}, "_priority", "_priority: found 10, wanted 0 to 9"),
        ({"_priority": pa.array(["low", "loud"])}, "_priority", "_priority: found 'loud'"),
        ({"_delay": pa.array([1, -1])}, "_delay", "_delay: found -1"),
        ({"_delay": pa.array([1, math.nan])}, "_delay", "_delay: found no finite number"),
        ({"_run_at": FAR.cast(pa.timestamp("us", "UTC"))}, "_run_at", "_run_at: found"),
        ({"_max_attempts": pa.array([1, 0])}, "_max_attempts", "_max_attempts: found 0"),
        ({"_timeout": pa.array([1, 0])}, "_timeout", "_timeout: found 0, wanted more"),
        ({"_backoff": pa.array(["spool", "spoon"])}, "_backoff", "_backoff: found 'spoon'"),
        ({"_key": pa.array(["k", ""])}, "_key", "_key: found ''"),
        ({"_idempotency_key": pa.array(["k", "k" * 513])}, "_idempotency_key", "_idempotency_key: found"),
        ({"_id": pa.array(["good", "not good"])}, "_id", "_id: found 'not good'"),
        (
            {"_headers": _maps({"a": "b"}, {"a": "\n"})},
            "_headers.a",
            "wanted text without control characters",
        ),
        ({"_headers": _maps({"a": "b"}, {"a": None})}, "_headers.a", "_headers.a: found None, wanted text"),
        (
            {"_headers": _maps({}, {"a b": ""})},
            "_headers name",
            "_headers name: found 'a b', wanted 1 to 128",
        ),
    ],
)
def test_a_bad_row_is_named_and_the_others_go_on(
    columns: dict[str, pa.Array], field: str, reason: str
) -> None:
    """The first row of each is good, the second has the fault that its reason names."""
    jobs, flaws = read(pa.record_batch(columns))

    assert list(jobs) == [0]
    assert list(flaws) == [1]
    assert flaws[1].field == field
    assert flaws[1].reason.startswith(field)
    assert re.search(reason, flaws[1].reason)


def test_a_delay_and_a_time_exclude_each_other() -> None:
    """One row may have the one and another the other."""
    times = pa.array([None, 1, 1], pa.int64()).cast(pa.timestamp("us", "UTC"))
    jobs, flaws = read(pa.record_batch({"_delay": pa.array([1, None, 1]), "_run_at": times}))

    assert list(jobs) == [0, 1]
    assert "either _delay or _run_at" in flaws[2].reason


def test_a_row_without_a_key_is_bad_where_one_is_needed() -> None:
    """Rows that cannot be told apart would be one job."""
    batch = pa.record_batch({"n": pa.array([1, None])})
    jobs, flaws = read(batch, keyColumns="n", duplicates="refuse")

    assert list(jobs) == [0]
    assert flaws[1].field == "keyColumns"
    with_keys = pa.record_batch({"_idempotency_key": pa.array(["a", None])})
    jobs, flaws = read(with_keys, duplicates="refuse")
    assert list(jobs) == [0]
    assert flaws[1].field == "_idempotency_key"


def test_a_priority_is_bad_where_keys_take_turns() -> None:
    """As it is for a client."""
    batch = pa.record_batch({"_priority": pa.array([None, 3]), "_key": pa.array(["k", "k"])})
    jobs, flaws = read(batch, queue="keyed")

    assert list(jobs) == [0]
    assert "keys take turns" in flaws[1].reason


def test_a_bad_row_can_be_shown_whatever_is_in_it() -> None:
    """Where a value has no form in JSON, as text that comes near."""
    assert shown("x", pa.array([0.5, math.nan]), 1) == "nan"
    assert shown("x", pa.array([[0.5], [math.inf]]), 1) == "[inf]"
    assert shown("x", _wrong_text(), 1) == "\ufffd\ufffd"
    assert shown("x", FAR.cast(pa.timestamp("us", "UTC")), 1) == str(2**61)
    assert shown("x", pa.array([{"at": datetime(2026, 1, 1, tzinfo=UTC)}]), 0) == {
        "at": datetime(2026, 1, 1, tzinfo=UTC)
    }
