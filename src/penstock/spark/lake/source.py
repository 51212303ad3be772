"""Tables of a lake through the format `penstock`: for catalogs, and for object stores without a connector.

A reader looks at the log when a query is planned, so a view over it is of the newest version each time.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec
import pyarrow as pa
from pyarrow import parquet
from pyspark.sql.datasource import DataSourceReader, InputPartition

from penstock.core.errors import OptionError
from penstock.spark.errors import TableError
from penstock.spark.lake.folder import Folder, folder_at
from penstock.spark.lake.schemas import TableShape, shape_of
from penstock.spark.lake.table import LakeTable
from penstock.spark.source import LAKE_OPTION

_KNOWN: Final = frozenset({LAKE_OPTION, "table", "columns"})
_BATCH_ROWS: Final = 65_536


class LakeOptions(msgspec.Struct, frozen=True):
    """Which table of which lake, and the columns that are wanted; all where none is named."""

    folder: Folder
    shape: TableShape
    columns: tuple[str, ...] = ()

    @property
    def schema(self) -> pa.Schema:
        """The columns, without their comments: Spark compares what it gets with what it was told."""
        bare = pa.schema([field.remove_metadata() for field in self.shape.schema])
        if unknown := [name for name in self.columns if name not in bare.names]:
            raise OptionError("columns", unknown[0], f"some of {', '.join(bare.names)}")
        return pa.schema([bare.field(name) for name in self.columns or bare.names])


def read_lake_options(given: Mapping[str, str]) -> LakeOptions:
    """The options of a reader of a lake; OptionError names the one that is wrong."""
    said = {name.lower(): text for name, text in given.items()}
    if unknown := sorted(set(said) - _KNOWN):
        raise OptionError(
            "option", unknown[0], f"one that a table of a lake has: {', '.join(sorted(_KNOWN))}"
        )
    columns = tuple(part.strip() for part in said.get("columns", "").split(",") if part.strip())
    return LakeOptions(folder_at(said[LAKE_OPTION]), shape_of(said.get("table", "jobs")), columns)


@dataclass(frozen=True)
class _LakeFile(InputPartition):
    path: str
    partition: Mapping[str, str | None]


class LakeReader(DataSourceReader):
    """The rows of one version of a table, a task for each file."""

    def __init__(self, options: LakeOptions) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        """The files that are the table now."""
        table = LakeTable(self._options.folder, self._options.shape)
        if not table.load():
            raise TableError(f"{table.where}: there is no table")
        return [_LakeFile(file.path, file.partition) for file in table.files()]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a file; a table without files has none."""
        if not isinstance(partition, _LakeFile):
            return
        schema = self._options.schema
        folder = self._options.folder.below(self._options.shape.path)
        file = parquet.ParquetFile(folder.open(partition.path), page_checksum_verification=True)
        names = [name for name in schema.names if name in file.schema_arrow.names]
        for batch in file.iter_batches(_BATCH_ROWS, columns=names):
            yield pa.RecordBatch.from_arrays(
                [_column(batch, field, partition) for field in schema], schema=schema
            )


def _column(batch: pa.RecordBatch, field: pa.Field, file: _LakeFile) -> pa.Array:
    if field.name in batch.schema.names:
        return batch.column(field.name).cast(field.type)
    value = file.partition.get(field.name)
    if value is None:
        return pa.nulls(batch.num_rows, field.type)
    return pa.repeat(pa.scalar(value, pa.string()), batch.num_rows).cast(field.type)
