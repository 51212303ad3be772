"""What the fold over events leaves behind: breaches, counts, and what rules across jobs are about."""

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType


class Kind(IntEnum):
    """What a row says."""

    BREACH = 0
    """`name` is the rule and `text` says how it was broken."""
    FIGURE = 1
    """`name` is a figure of the verdict and `number` is to be added to it."""
    HOLD = 2
    """The job took the idempotency key `text` with the event `seq`, and freed it with the event `number`.

    `name` is `known` where an earlier audit has seen it taken."""
    INSTANT = 3
    """The job was made for the instant `number` of the schedule `text`."""
    STEP = 4
    """The running jobs of the key `text` changed by `number`; `name` is `claim` where by a claim."""
    KEYLESS = 5
    """The job was enqueued without a key."""
    LEFT = 6
    """The job is left in the state `name`, which may be unknown; `number` is null where it was removed."""
    LIFE = 7
    """What is known of the job after the event `seq`, packed; nothing once it is gone.

    `text` is the idempotency key that it holds since the event `number`."""
    SPAN = 8
    """Some number from `seq` to `number` is in the log twice."""
    EDGE = 9
    """The log goes to the event `seq`."""


SCHEMA: Final = pa.schema(
    [
        pa.field("kind", pa.int8()),
        pa.field("life", pa.int64()),
        pa.field("tenant", pa.string()),
        pa.field("queue", pa.string()),
        pa.field("job", pa.string()),
        pa.field("seq", pa.int64()),
        pa.field("at", pa.int64()),
        pa.field("name", pa.string()),
        pa.field("text", pa.string()),
        pa.field("number", pa.int64()),
        pa.field("packed", pa.binary()),
    ]
)
"""`life` is a hash of the tenant, the queue and the job; `at` is Unix milliseconds."""


def spark_schema() -> StructType:
    """The same for Spark."""
    return from_arrow_schema(SCHEMA)


def batch(kind: Kind, many: int, **columns: pa.Array) -> pa.RecordBatch:
    """So many rows of one kind; what is not given is null."""
    kinds = pa.array([kind], pa.int8()).take(pa.nulls(many, pa.int8()).fill_null(0))
    arrays = [
        kinds if field.name == "kind" else columns.get(field.name, pa.nulls(many, field.type))
        for field in SCHEMA
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def rows(entries: Iterable[Mapping[str, Any]]) -> pa.RecordBatch:
    """Rows of any kinds."""
    return pa.RecordBatch.from_pylist(list(entries), schema=SCHEMA)


KNOWN: Final = "known"
"""The name of what an earlier audit has told."""
