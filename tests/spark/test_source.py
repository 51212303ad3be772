"""The data source as a plain object: its schema, and what it refuses before anything is read or written."""

import re

import pytest
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from penstock.core.errors import OptionError
from penstock.spark.schemas import EVENTS, JOBS
from penstock.spark.source import PenstockSource

URL = "sqlite:////nowhere.db"


def source(**raw: str) -> PenstockSource:
    return PenstockSource({"url": URL, **raw})


def test_each_table_has_its_columns() -> None:
    assert source().schema().names == JOBS.names
    assert source(table="dlq").schema().names == JOBS.names
    assert source(table="events").schema().names == EVENTS.names


def test_columns_narrow_the_schema_in_the_order_given() -> None:
    assert source(columns="state,id").schema() == StructType(
        [StructField("state", StringType()), StructField("id", StringType())]
    )


def test_a_column_that_is_not_there_is_named() -> None:
    with pytest.raises(OptionError, match="columns: found 'colour', wanted some of tenant, queue, id"):
        source(columns="id,colour").schema()


def test_a_schema_of_the_callers_narrows_too() -> None:
    wanted = StructType([StructField("id", StringType()), StructField("priority", IntegerType())])

    reader = source(columns="id,state").reader(wanted)

    assert "columns=('id', 'priority')" in repr(vars(reader))


def test_a_schema_with_other_types_is_refused() -> None:
    wanted = StructType([StructField("priority", StringType())])

    with pytest.raises(
        OptionError, match=re.escape("schema: found 'priority string', wanted priority int32")
    ):
        source().reader(wanted)


def test_a_schema_without_columns_is_refused() -> None:
    with pytest.raises(OptionError, match="schema: found 'no columns', wanted some of tenant"):
        source().reader(StructType([]))


def test_a_wrong_name_is_told_before_anything_else() -> None:
    with pytest.raises(OptionError, match="did you mean columns"):
        PenstockSource({"url": URL, "colums": "id"})


def test_overwriting_is_refused() -> None:
    with pytest.raises(OptionError, match=re.escape('wanted mode("append")')):
        source().writer(StructType([]), overwrite=True)
    with pytest.raises(OptionError, match=re.escape('wanted mode("append")')):
        source().streamWriter(StructType([]), overwrite=True)


def test_only_events_are_streamed_and_only_jobs_are_written() -> None:
    with pytest.raises(OptionError, match="events: a stream is of events"):
        source(table="jobs").streamReader(source().schema())
    with pytest.raises(OptionError, match="jobs: rows become jobs"):
        source(table="events").writer(StructType([]), overwrite=False)
