"""Bronze: every event as it came, with when and in which batch; and what was wrong with some, counted."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.spark.events.ranges import EventRange
from penstock.spark.events.reading import read
from penstock.spark.lake import files
from penstock.spark.lake.folder import Folder
from penstock.spark.lake.parts import ALL, parts_of
from penstock.spark.lake.schemas import BRONZE, DAY
from penstock.spark.lake.silver.fold import GAP
from penstock.spark.lake.table import DataFile
from penstock.spark.options import SourceOptions
from penstock.spark.schemas import EVENTS

SCHEMA: Final = BRONZE.file_schema


class Counts(msgspec.Struct, frozen=True):
    """What a batch has.

    `duplicates` are rows whose number came before in it; `newest` is in Unix milliseconds.
    """

    rows: int = 0
    duplicates: int = 0
    problems: int = 0
    gaps: int = 0
    newest: int | None = None

    def figures(self, now_ms: int) -> dict[str, int]:
        """What the log of the table says of the batch; `lag_ms` is how old its newest event is."""
        found = {
            "events": self.rows,
            "duplicates": self.duplicates,
            "problems": self.problems,
            "gaps": self.gaps,
        }
        return found if self.newest is None else {**found, "lag_ms": max(0, now_ms - self.newest)}

    def __add__(self, other: "Counts") -> "Counts":
        newest = [each for each in (self.newest, other.newest) if each is not None]
        return Counts(
            self.rows + other.rows,
            self.duplicates + other.duplicates,
            self.problems + other.problems,
            self.gaps + other.gaps,
            max(newest, default=None),
        )


@dataclass(frozen=True)
class Ingest:
    """The part of a batch that a task brings: these ranges of the log, cut into `parts`."""

    folder: Folder
    options: SourceOptions
    ranges: Sequence[EventRange]
    batch: int
    at_ms: int
    parts: int


class Brought(msgspec.Struct, frozen=True):
    """What a task brought: its files, what is in them, and the parts that have events."""

    files: Sequence[DataFile]
    counts: Counts
    parts: frozenset[int]


def ingest(work: Ingest) -> Brought:
    """Read ranges of the log and write them as they are. Done again, it writes other files."""
    tables = [_table(work, range_) for range_ in work.ranges]
    counts = sum(map(_counts, tables), Counts())
    return write(work.folder, pa.concat_tables(tables), counts, work.parts)


def write(folder: Folder, events: pa.Table, counts: Counts, parts: int) -> Brought:
    """Write events, day by day and in each file part by part."""
    part = parts_of(_whole(events, "job"), parts)
    order = np.argsort(part, kind="stable") if parts > 1 else None
    if order is not None:
        part = part[order]
        events = events.take(pa.array(order))
    written: list[DataFile] = []
    numbered = events.append_column("_part", pa.array(part))
    for day, rows in files.by_value(numbered, _whole(events, "at").cast(pa.date32())):
        found, sizes = np.unique(rows["_part"].to_numpy(), return_counts=True)
        groups = list(zip(found.tolist(), sizes.tolist(), strict=True))
        written.append(files.write(folder, rows.drop_columns(["_part"]), {DAY: day}, groups, parts))
    touched = {int(each) for each in np.unique(part)}
    return Brought(written, counts, frozenset(range(parts)) if ALL in touched else frozenset(touched))


def stamped(events: pa.Table, batch: int, at_ms: int) -> pa.Table:
    """Events with the batch that brings them, and when."""
    at = datetime.fromtimestamp(at_ms / 1000, UTC)
    stamps = {
        "batch_id": pa.scalar(batch, pa.int64()),
        "ingested_at": pa.scalar(at, SCHEMA.field("ingested_at").type),
    }
    for name, value in stamps.items():
        events = events.append_column(SCHEMA.field(name).remove_metadata(), pa.repeat(value, events.num_rows))
    return events


def _table(work: Ingest, range_: EventRange) -> pa.Table:
    return stamped(pa.Table.from_batches(list(read(work.options, range_)), EVENTS), work.batch, work.at_ms)


def _counts(events: pa.Table) -> Counts:
    """The counts of the rows of one range, all of one queue."""
    is_gap = pc.equal(events["move"], GAP).fill_null(False)
    is_bad = pc.and_not(pc.is_valid(events["problem"]), is_gap)
    sound = events.filter(pc.is_null(events["problem"]))
    newest = pc.max(sound["at"]).cast(pa.int64()).as_py()
    seq = sound["seq"].to_numpy()
    return Counts(
        events.num_rows,
        0 if (np.diff(seq) > 0).all() else seq.size - np.unique(seq).size,
        pc.sum(is_bad).as_py() or 0,
        pc.sum(is_gap).as_py() or 0,
        None if newest is None else newest // 1000,
    )


def _whole(table: pa.Table, name: str) -> pa.Array:
    found = table[name].combine_chunks()
    return pa.concat_arrays(found.chunks) if isinstance(found, pa.ChunkedArray) else found
