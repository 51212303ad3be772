"""A task of silver: reads the new events of a part and its open rows, and writes what becomes of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from penstock.spark.lake import files
from penstock.spark.lake.folder import Folder
from penstock.spark.lake.parts import bucket_of
from penstock.spark.lake.schemas import BRONZE, BUCKET, CLOSED_DAY
from penstock.spark.lake.silver import attempts, jobs
from penstock.spark.lake.silver.fold import EVENT_COLUMNS, fold, readable
from penstock.spark.lake.silver.jobs import Folded
from penstock.spark.lake.silver.lives import fitted
from penstock.spark.lake.table import DataFile

_EVENT_SCHEMA: Final = pa.schema(
    [BRONZE.schema.field(name).remove_metadata() for name in (*EVENT_COLUMNS, "jobs", "problem", "batch_id")]
)


@dataclass(frozen=True)
class Step:
    """The part that a task works on: events of these batches, and files with open rows that may be of it."""

    lake: Folder
    part: int
    parts: int
    first_batch: int
    last_batch: int
    events: Sequence[str]
    open_attempts: Sequence[str]
    open_jobs: Sequence[str]


class Merged(msgspec.Struct, frozen=True):
    """The new files of a part, by table."""

    attempts: Sequence[DataFile]
    jobs: Sequence[DataFile]


def merge(step: Step) -> Merged:
    """Merge new events into the open rows of a part. Done again, it writes other files."""
    events = [
        files.read(step.lake.below("bronze/events"), path, _EVENT_SCHEMA.names, step.part, step.parts)
        for path in step.events
    ]
    found = _table(_EVENT_SCHEMA, events)
    batch = found["batch_id"]
    is_new = pc.and_(pc.greater_equal(batch, step.first_batch), pc.less_equal(batch, step.last_batch))
    found = found.filter(is_new)
    # What concerns many jobs is told of each, and then is of a part.
    told = files.sift(readable(found), step.part, step.parts)
    open_attempts = _open(step, "silver/attempts", step.open_attempts, attempts.SCHEMA)
    open_jobs = _open(step, "silver/jobs", step.open_jobs, jobs.SCHEMA)
    done = fold(told, open_attempts, open_jobs)
    closed_on = pc.coalesce(done.attempts.closed["ended_at"], done.attempts.closed["deadline"])
    jobs_closed_on = pc.coalesce(
        *(done.jobs.closed[name] for name in ("ended_at", "removed_at", "changed_at"))
    )
    return Merged(
        _write(step, "silver/attempts", done.attempts, closed_on),
        _write(step, "silver/jobs", done.jobs, jobs_closed_on),
    )


def _open(step: Step, table: str, paths: Sequence[str], schema: pa.Schema) -> pa.Table:
    folder = step.lake.below(table)
    return _table(schema, [files.read(folder, path, schema.names, step.part, step.parts) for path in paths])


def _table(schema: pa.Schema, found: Sequence[pa.Table]) -> pa.Table:
    return pa.concat_tables(
        [schema.empty_table(), *(fitted(table, schema) for table in found)]
    ).combine_chunks()


def _write(step: Step, table: str, rows: Folded, closed_on: pa.ChunkedArray) -> list[DataFile]:
    folder = step.lake.below(table)
    written = []
    if rows.open.num_rows:
        bucket = bucket_of(step.part, step.parts)
        written.append(files.write(folder, rows.open, {CLOSED_DAY: None, BUCKET: bucket}))
    if rows.closed.num_rows:
        # Whatever lacks a time all the same is closed on the first day there is.
        days = (
            closed_on.combine_chunks().cast(pa.date32()).fill_null(pa.scalar(0, pa.int32()).cast(pa.date32()))
        )
        days = pa.concat_arrays(days.chunks) if isinstance(days, pa.ChunkedArray) else days
        for day, chosen in files.by_value(rows.closed, days):
            written.append(files.write(folder, chosen, {CLOSED_DAY: day, BUCKET: None}))
    return written
