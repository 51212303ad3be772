"""Parquet files of a table: written by tasks, whole or not at all, and read part by part."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final
from uuid import uuid4

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from penstock.spark.lake.folder import Folder
from penstock.spark.lake.parts import ALL, parts_of
from penstock.spark.lake.table import DataFile, file_of

_NULL: Final = "__HIVE_DEFAULT_PARTITION__"
_PARTS: Final = b"penstock.parts"
"""Which part each row group of a file has, and of how many."""
_MANY: Final = frozenset(
    {"job", "cursor", "idempotency_key", "seq", "fence", "at", "enqueue_seq", "last_seq"}
)
"""Columns with too many values for a dictionary."""


def write(
    folder: Folder,
    table: pa.Table,
    partition: Mapping[str, str | None],
    groups: Sequence[tuple[int, int]] = (),
    count: int = 1,
) -> DataFile:
    """Write rows into a new file of a partition. `groups` are parts, and how many of the rows are of each.

    Nobody sees the file before it is committed, and the file of a try that failed stays unseen.
    """
    path = "/".join(
        [*(f"{name}={value or _NULL}" for name, value in partition.items()), f"{uuid4().hex}.parquet"]
    )
    schema = table.schema.remove_metadata()
    if groups:
        said = f"{count}:" + ",".join(str(part) for part, _ in groups)
        schema = schema.with_metadata({_PARTS: said.encode()})
    sink = pa.BufferOutputStream()
    writer = parquet.ParquetWriter(
        sink,
        schema,
        compression="zstd",
        use_dictionary=[name for name in schema.names if name not in _MANY],
        write_page_checksum=True,
    )
    with writer:
        at = 0
        for _, rows in groups or [(ALL, table.num_rows)]:
            writer.write_table(table.slice(at, rows).cast(schema), row_group_size=max(1, rows))
            at += rows
    data = sink.getvalue()
    folder.write(path, data.to_pybytes())
    return file_of(path, data.size, table, partition)


def read(folder: Folder, path: str, columns: Sequence[str], part: int, count: int) -> pa.Table:
    """The rows of a part, and those that concern every part; columns that the file lacks are left out.

    Files that say so are read in that part alone. Others, such as compacted ones, are read whole and sifted.
    """
    file = parquet.ParquetFile(folder.open(path), page_checksum_verification=True)
    names = [name for name in columns if name in file.schema_arrow.names]
    said = (file.schema_arrow.metadata or {}).get(_PARTS, b"").decode()
    if said:
        written, _, listed = said.partition(":")
        if int(written) == count:
            chosen = [at for at, each in enumerate(map(int, listed.split(","))) if each in (part, ALL)]
            return file.read_row_groups(chosen, columns=names)
    return sift(file.read(columns=names), part, count)


def sift(rows: pa.Table, part: int, count: int) -> pa.Table:
    """The rows of a part, and those without a job."""
    if count == 1 or not rows.num_rows:
        return rows
    ids = rows["job"].combine_chunks()
    ids = pa.concat_arrays(ids.chunks) if isinstance(ids, pa.ChunkedArray) else ids
    found = parts_of(ids, count)
    return rows.filter(pa.array((found == part) | (found == ALL)))


def by_value(rows: pa.Table, values: pa.Array) -> Iterator[tuple[str | None, pa.Table]]:
    """The rows by the value that stands beside them, as text."""
    coded = values.dictionary_encode(null_encoding="encode")
    codes = coded.indices.to_numpy()
    names = coded.dictionary.to_pylist()
    if len(names) == 1:
        yield _text(names[0]), rows
        return
    for code, name in enumerate(names):
        yield _text(name), rows.filter(pa.array(np.equal(codes, code)))


def _text(value: object) -> str | None:
    return None if value is None else str(value)
