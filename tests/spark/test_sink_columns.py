"""What the columns of a DataFrame mean is settled, or refused, before anything is written."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import StructType

from penstock.core.errors import OptionError
from penstock.spark.options import read_options
from penstock.spark.sink.columns import columns_of
from penstock.spark.sink.writers import JobsStreamWriter, JobsWriter, plan_of

# Types are written in SQL, which Spark reads.
pytestmark = pytest.mark.usefixtures("spark")

GIVEN = {"url": "sqlite:///jobs.db", "queue": "mail", "task": "send", "keyColumns": "n"}


def schema_of(ddl: str) -> StructType:
    schema = StructType.fromDDL(ddl)
    assert isinstance(schema, StructType)
    return schema


def columns(ddl: str, **options: Any) -> Any:
    given = {name: str(value) for name, value in (GIVEN | options).items() if value is not None}
    return columns_of(schema_of(ddl), read_options(given, role="write"))


def test_plain_columns_are_arguments_and_underscored_ones_options() -> None:
    """Arguments come in the order of their names: the same row gives the same payload."""
    found = columns("n INT, _priority INT, _run_at TIMESTAMP, a STRING")

    assert found.members == {"a": 3, "n": 0}
    assert found.options == {"priority": 1, "run_at": 2}
    assert found.keys == (0,)
    assert found.payload is None


def test_a_column_payload_is_all_arguments() -> None:
    """What only keys are made of may stand beside it."""
    found = columns("n INT, payload STRING")

    assert found.payload == 1
    assert found.members == {}
    with pytest.raises(
        OptionError, match=r"^to: found a column, wanted no arguments beside the column payload"
    ):
        columns("n INT, payload STRING, to STRING")


@pytest.mark.parametrize(
    ("ddl", "options", "message"),
    [
        (
            "n INT",
            {"queue": None},
            "_queue: found no such column, wanted a column _queue, or the option queue",
        ),
        ("n INT", {"task": None}, "_task: found no such column, wanted a column _task, or the option task"),
        ("n INT", {"queue": "a,b"}, "queue: found 'a, b', wanted one queue, or a column _queue"),
        ("n INT", {"tenant": "*"}, r"tenant: found '\*', wanted one tenant, or a column _tenant"),
        ("n INT, _prio INT", {}, "_prio: found an unknown option, .* did you mean _priority"),
        ("n INT, _xyzzy INT", {}, "_xyzzy: found an unknown option, .*: _queue, _tenant, _task"),
        ("n INT, _priority DATE", {}, "_priority: found date, wanted int or string"),
        ("n INT, _run_at TIMESTAMP_NTZ", {}, "_run_at: found timestamp_ntz, wanted timestamp"),
        (
            "n INT, _delay STRING",
            {},
            "_delay: found string, wanted a number of seconds, or interval day to sec",
        ),
        ("n INT", {"keyColumns": "m"}, "keyColumns: found 'm', wanted columns of the DataFrame"),
        ("number INT", {"keyColumns": "numbr"}, "keyColumns: found 'numbr', .*did you mean number"),
        (
            "n INT",
            {"keyColumns": None},
            "keyColumns: found None, wanted the columns that tell rows apart, or a",
        ),
        ("n INT, v VARIANT", {}, "v: found variant, wanted a type with a form in JSON"),
        ("n INT, s STRUCT<a: ARRAY<INTERVAL MONTH>>", {}, r"s\.a\[\]: found interval month, wanted a type"),
        ("n INT, m MAP<DATE, INT>", {}, r"m \(its keys\): found date, wanted string"),
        ("n INT, _headers STRING", {}, "_headers: found string, wanted map of strings"),
        ("n INT, _headers MAP<STRING, INT>", {}, r"_headers \(its values\): found int, wanted string"),
        ("n INT, payload INT", {}, "payload: found int, wanted string with JSON, struct or map"),
        ("n INT, n STRING", {}, "n: found it twice, wanted each column once"),
        ('n INT, `a"b` INT', {}, "column: found 'a\"b', wanted a name without quotes, backslashes and"),
        ("n INT, `a\\b` INT", {}, "column: found 'a.+b', wanted a name without quotes"),
        ("n INT, `a\nb` INT", {}, "column: found 'a.nb', wanted a name without quotes"),
    ],
)
def test_what_cannot_be_written_is_refused_by_its_name(
    ddl: str, options: dict[str, Any], message: str
) -> None:
    """The message names the column, what was found and what is wanted."""
    with pytest.raises(OptionError, match=message):
        columns(ddl, **options)


def test_a_key_is_needed_unless_duplicates_are_allowed() -> None:
    """Either a column of keys, columns to make them of, or the word that none is wanted."""
    assert columns("n INT, _idempotency_key STRING", keyColumns=None).keys == ()
    assert columns("n INT", keyColumns=None, duplicates="allow").keys == ()


def test_moves_need_the_ids_of_jobs_and_leave_other_columns_alone() -> None:
    """Rows of `dlq` can be written back as they are."""
    given = {"operation": "redrive", "task": None, "keyColumns": None, "queue": None}
    found = columns("tenant STRING, queue STRING, id STRING, drive INT, _odd DATE", **given)

    assert (found.job, found.drive, found.options) == (2, 3, {"queue": 1, "tenant": 0})
    with pytest.raises(OptionError, match="job: found no such column"):
        columns("queue STRING", **given)
    with pytest.raises(OptionError, match="job: found both job and id"):
        columns("queue STRING, job STRING, id STRING", **given)
    with pytest.raises(OptionError, match="_queue: found no such column"):
        columns("job STRING", **given)
    with pytest.raises(OptionError, match="keyColumns: found"):
        columns("job STRING", **given | {"queue": "mail", "keyColumns": "job"})


def test_a_quarantine_that_cannot_be_is_refused() -> None:
    """At planning, not when the first bad row is met."""
    schema = schema_of("n INT")
    with pytest.raises(OptionError, match="quarantine: found None, wanted a folder for bad rows"):
        plan_of(read_options(GIVEN | {"onBadRow": "quarantine"}, role="write"), schema)
    with pytest.raises(OptionError, match="quarantine: found 'gopher://x/y', wanted a path, or an address"):
        plan_of(read_options(GIVEN | {"quarantine": "gopher://x/y"}, role="write"), schema)


@pytest.mark.parametrize("option", ["quarantine", "report"])
def test_a_folder_that_cannot_be_is_refused_before_any_row_is_in(option: str, tmp_path: Path) -> None:
    """A file, or a folder below one; a folder that can be is made."""
    file = tmp_path / "file"
    file.touch()
    for found in (str(file), f"{file}/below", file.as_uri()):
        with pytest.raises(OptionError, match=f"{option}: found '.*file.*', wanted a folder that files can"):
            plan_of(read_options(GIVEN | {option: found}, role="write"), schema_of("n INT"))
    plan_of(read_options(GIVEN | {option: str(tmp_path / "a" / "b")}, role="write"), schema_of("n INT"))

    assert list((tmp_path / "a" / "b").iterdir()) == []


def test_a_long_id_of_a_write_is_refused() -> None:
    """With how long it may be."""
    assert read_options(GIVEN | {"writeId": "é" * 200}).write_id == "é" * 200
    with pytest.raises(OptionError, match=r"writeId: found .* wanted at most 200 characters"):
        read_options(GIVEN | {"writeId": "W" * 201})


def test_writers_are_refused_where_their_columns_are() -> None:
    """Both kinds plan when they are made, on the driver."""
    schema = schema_of("n INT, _prio INT")
    for writer in (JobsWriter, JobsStreamWriter):
        with pytest.raises(OptionError, match="_prio"):
            writer(read_options(GIVEN), schema)
