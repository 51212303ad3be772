"""The page about Spark names every option, and every column with its type."""

import re

import pytest
from pyspark.sql.pandas.types import from_arrow_type

from penstock.spark import options
from penstock.spark.lake.schemas import ATTEMPTS, TableShape
from penstock.spark.lake.schemas import JOBS as LAKE_JOBS
from penstock.spark.schemas import EVENTS, JOBS
from penstock.spark.source import PenstockSource
from tests.docs.test_reference import text_of


def part(title: str) -> str:
    """A section of the page."""
    text = text_of("spark.md")
    start = text.index(f"\n## {title}\n")
    return text[start : text.index("\n## ", start + 1)]


def test_every_option_is_on_the_page() -> None:
    rows = re.findall(r"^\| (`.+?`) \| .+ \|.*\|$", part("Options"), re.MULTILINE)
    listed = [name for row in rows for name in re.findall(r"`(\w+)`", row)]

    assert sorted(listed) == sorted(options.names())


def test_every_column_is_on_the_page_with_its_type() -> None:
    for title, table, schema in (("`jobs` and `dlq`", "jobs", JOBS), ("`events`", "events", EVENTS)):
        rows = re.findall(r"^\| `(\w+)` \| ([\w ]+) \|", part(title), re.MULTILINE)
        declared = PenstockSource({"url": "redis://host", "table": table}).schema()
        types = [
            each.dataType.simpleString().replace("array<string>", "array of string") for each in declared
        ]

        assert rows == list(zip(schema.names, types, strict=True))


@pytest.mark.parametrize("shape", [ATTEMPTS, LAKE_JOBS])
def test_every_column_of_silver_is_on_the_page_with_its_type(shape: TableShape) -> None:
    text = text_of("spark.md")
    start = text.index(f"### `{shape.name}` (silver)")
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \|", text[start : text.index("\n### ", start + 1)], re.MULTILINE)

    assert rows == [(field.name, from_arrow_type(field.type).simpleString()) for field in shape.schema]
