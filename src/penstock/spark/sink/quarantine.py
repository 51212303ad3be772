"""Bad rows and their reasons, in a folder of Parquet files: one per task, the same when it runs again."""

import tempfile
import time
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.spark.errors import BadRowError
from penstock.spark.options import SourceOptions
from penstock.spark.schemas import AT
from penstock.spark.sink.folders import Folder
from penstock.spark.sink.values import Flaw, shown
from penstock.spark.sink.write_scope import WriteScope

QUARANTINE: Final = pa.schema(
    [
        pa.field("row", pa.string()),
        pa.field("reason", pa.string()),
        pa.field("field", pa.string()),
        pa.field("write_id", pa.string()),
        pa.field("batch_id", pa.int64()),
        pa.field("at", AT),
    ]
)
"""One bad row. `row` is JSON, `field` the column or the place in it, `batch_id` null outside of streams."""
_ROWS_PER_FLUSH: Final = 1_000
"""Rows that are held until they are written."""


class Quarantine:
    """The bad rows of one task. Without a folder, or with onBadRow=fail, the first one raises."""

    def __init__(self, options: SourceOptions, place: WriteScope, scope: str) -> None:
        self._place = place
        self._takes = options.quarantine is not None and options.on_bad_row != "fail"
        self._is_dry = options.dry_run
        self._folder = options.quarantine
        self._name = f"{place.prefix(scope)}{place.partition:05}.parquet"
        self._rows: list[dict[str, Any]] = []
        self._data: Any = None
        self._writer: Any = None

    def add(self, batch: pa.RecordBatch, at: int, flaw: Flaw) -> None:
        """Take in a row; BadRowError where there is no place for it."""
        if self._is_dry:
            return
        if not self._takes:
            raise BadRowError(
                f"{flaw.reason}. Other rows may be written: with writeId={self._place.write_id} a second run "
                "writes none of them again. The option quarantine=<folder> sets bad rows aside and goes on"
            )
        row = {
            name: shown(name, column, at)
            for name, column in zip(batch.schema.names, batch.columns, strict=True)
        }
        self._rows.append(
            {
                "row": msgspec.json.encode(row).decode(),
                "reason": flaw.reason,
                "field": flaw.field,
                "write_id": self._place.write_id,
                "batch_id": self._place.batch_id,
                "at": time.time_ns() // 1000,
            }
        )
        if len(self._rows) >= _ROWS_PER_FLUSH:
            self._flush()

    def close(self) -> str | None:
        """Put the file in its place; its name, or None when no row was bad."""
        self._flush()
        if self._writer is None:
            return None
        self._writer.close()
        self._data.seek(0)
        Folder(self._folder or "").put(self._name, self._data)
        self._data.close()
        return self._name

    def _flush(self) -> None:
        if not self._rows:
            return
        if self._writer is None:
            # Elsewhere first: a task that fails leaves nothing behind.
            self._data = tempfile.TemporaryFile()  # noqa: SIM115 (closed when it was put in its place)
            self._writer = pq.ParquetWriter(self._data, QUARANTINE)
        self._writer.write_table(pa.Table.from_pylist(self._rows, QUARANTINE))
        self._rows.clear()
