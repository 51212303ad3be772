"""Rows of the SQL stores as rows of the table."""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.errors import StoreFormatError
from penstock.core.flows import JobRef
from penstock.core.job import QueueRef
from penstock.spark.schemas import JOBS
from penstock.stores.rows import restored
from penstock.stores.scan_request import COLUMNS_IN_MORE, COLUMNS_OF_QUEUES, ScanRequest, headers_text
from penstock.stores.sql_scan import ESCAPED

Numbers = Mapping[int, QueueRef]
"""Queues by the number that jobs name them by."""


class _More(msgspec.Struct, frozen=True):
    """What few jobs have: JSON in a column of its own."""

    parents: tuple[JobRef, ...] = ()
    schedule: str | None = None
    instant: int | None = None
    headers: dict[str, str] | None = None


_MORE: Final = msgspec.json.Decoder(_More)
_NOTHING: Final = _More()


def shaped(batch: pa.RecordBatch, request: ScanRequest, queues: Numbers) -> pa.RecordBatch:
    """Rows of the store as rows of the table; StoreFormatError names a job whose JSON is damaged."""
    more = _more(batch) if "more" in batch.schema.names else None
    arrays = []
    for name in request.columns:
        if name in COLUMNS_OF_QUEUES:
            arrays.append(_of_queues(batch, name, queues))
        elif name in COLUMNS_IN_MORE:
            arrays.append(
                pa.nulls(batch.num_rows, JOBS.field(name).type) if more is None else _of_more(more, name)
            )
        else:
            arrays.append(_column(batch.column(name), name))
    return pa.RecordBatch.from_arrays(
        arrays, schema=pa.schema([JOBS.field(name) for name in request.columns])
    )


def _column(found: pa.Array, name: str) -> pa.Array:
    kind = JOBS.field(name).type
    if pa.types.is_timestamp(kind):
        return moments(found)
    if name in ESCAPED and pc.any(pc.match_substring(found, "\\")).as_py():
        found = pa.array(map(restored, found.to_pylist()), pa.string())
    return found if found.type == kind else found.cast(kind)


def moments(millis: pa.Array) -> pa.Array:
    """Times out of milliseconds."""
    return pc.multiply(millis.cast(pa.int64()), 1000).cast(pa.timestamp("us")).cast(pa.timestamp("us", "UTC"))


def _of_queues(batch: pa.RecordBatch, name: str, queues: Numbers) -> pa.Array:
    numbers = pa.array(list(queues), pa.int64())
    names = pa.array(
        [each.tenant if name == "tenant" else each.name for each in queues.values()], pa.string()
    )
    return names.take(pc.index_in(batch.column("queue").cast(pa.int64()), value_set=numbers))


def _more(batch: pa.RecordBatch) -> list[_More] | None:
    """What few jobs have; None where none of these has."""
    column = batch.column("more")
    if column.null_count == len(column):
        return None
    found = []
    for at, text in enumerate(column.to_pylist()):
        try:
            found.append(_NOTHING if text is None else _MORE.decode(text))
        except msgspec.DecodeError as error:
            raise StoreFormatError(f"job {batch.column('id')[at]}: column more: {error}") from None
    return found


def _of_more(more: Sequence[_More], name: str) -> pa.Array:
    if name == "parents":
        found = [list(map(str, each.parents)) or None for each in more]
        return pa.array(found, JOBS.field(name).type)
    if name == "headers":
        return pa.array([headers_text(each.headers) for each in more], pa.string())
    if name == "schedule":
        return pa.array([each.schedule for each in more], pa.string())
    return moments(pa.array([each.instant for each in more], pa.int64()))
