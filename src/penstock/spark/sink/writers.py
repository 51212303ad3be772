"""What Spark calls to write a DataFrame or a stream: tasks write, the driver sums up."""

import io
import logging
import secrets
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from penstock.core.errors import OptionError
from penstock.spark.options import SourceOptions
from penstock.spark.shielding import shielded
from penstock.spark.sink.columns import columns_of
from penstock.spark.sink.folders import Folder, absolute, refuse_unusable
from penstock.spark.sink.partition import Plan, write_partition
from penstock.spark.sink.write_scope import scope_here, scope_of, slots_here
from penstock.spark.sink.write_stats import WriteStats, Written
from penstock.spark.stores import run

_LOGGER: Final = logging.getLogger("penstock.spark")


class JobsWriter(DataSourceArrowWriter):
    """Writes a DataFrame. Made on the driver, where the write gets an id if none was given."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._plan = plan_of(options, schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """The rows of one task; a row that an earlier run of it brought in is found there."""
        return _write(self._plan, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """All tasks are done: sum up."""
        _finish(self._plan, messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Nothing to take back: a row that is written again finds its job there."""


class JobsStreamWriter(DataSourceStreamArrowWriter):
    """Writes the micro-batches of a stream, under the id of its query."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._plan = plan_of(options, schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """The rows of one task of a micro-batch."""
        return _write(self._plan, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 (Spark's name)
        """All tasks of the micro-batch are done: sum up."""
        _finish(self._plan, messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 (Spark's name)
        """Nothing to take back: the micro-batch is run again."""


def plan_of(options: SourceOptions, schema: StructType) -> Plan:
    """What is to be done; OptionError where options and columns do not fit together."""
    if options.on_bad_row == "quarantine" and options.quarantine is None:
        raise OptionError("quarantine", None, "a folder for bad rows, beside onBadRow=quarantine")
    columns = columns_of(schema, options)
    folders = {
        name: absolute(name, folder)
        for name in ("quarantine", "report")
        if (folder := getattr(options, name)) is not None
    }
    for name, folder in folders.items():
        # A dry run leaves no bad rows, but a report.
        if name == "report" or not options.dry_run:
            refuse_unusable(name, folder)
    options = msgspec.structs.replace(options, **folders)
    return Plan(options, columns, scope_of(options, columns), secrets.token_hex(8))


def _write(plan: Plan, batches: Iterator[pa.RecordBatch]) -> Written:
    place = scope_here(plan.options.write_id, plan.made_id)
    with shielded(plan.options.store_url):
        return run(write_partition(plan, place, batches, slots=slots_here()))


def _finish(plan: Plan, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Drop bad rows of earlier runs that were cut otherwise, and tell what became of the rows."""
    parts = [message for message in messages if isinstance(message, Written)]
    if not parts:
        return
    options, place, stats = plan.options, parts[0].place, WriteStats()
    for part in parts:
        stats.add(part.stats)
    prefix = place.prefix(plan.scope)
    if options.quarantine is not None and not options.dry_run:
        folder = Folder(options.quarantine)
        for name in set(folder.names(prefix)) - {part.quarantined for part in parts}:
            folder.drop(name)
    batch = "" if place.batch_id is None else f", batch {place.batch_id}"
    dry = ", dry run" if options.dry_run else ""
    # Nobody sets up logging in this process of Spark's: what is less than a warning is not seen.
    level = logging.WARNING if stats.bad or stats.refused or options.dry_run else logging.INFO
    _LOGGER.log(level, "%s %s%s%s: %s", options.operation, place.write_id, batch, dry, stats)
    if options.report is not None:
        told = {
            "operation": options.operation,
            "write_id": place.write_id,
            "batch_id": place.batch_id,
            "dry_run": options.dry_run,
            **msgspec.structs.asdict(stats),
        }
        Folder(options.report).put(f"{prefix}json", io.BytesIO(msgspec.json.encode(told)))
