"""Small files made large, and files that no version needs any longer removed. Neither needs Spark."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import msgspec
from deltalake import WriterProperties
from deltalake.exceptions import CommitFailedError, DeltaError

from penstock.spark.errors import TableError
from penstock.spark.lake.folder import one_line
from penstock.spark.lake.schemas import BUCKET
from penstock.spark.lake.table import DataFile, LakeTable, upkeep_properties

TARGET_BYTES: Final = 128 << 20
KEEP_HOURS: Final = 24
"""How long replaced files stay: longer than any reader of a table and any batch takes."""
_TRIES: Final = 5


class Optimized(msgspec.Struct, frozen=True):
    """What became of a table: how many files it had and has."""

    table: str
    before: int
    after: int


def optimize(table: LakeTable, *, target_bytes: int = TARGET_BYTES, fewest: int = 2) -> Optimized:
    """Join the small files of each partition that has at least so many of them.

    Rows stay as they are, and so does every version before. Open rows are left alone: batches rewrite them.
    It may run beside the pipeline, and be stopped at any time.
    """
    table.load()
    before = len(table.files())
    for partition in _crowded(table.files(), target_bytes, fewest):
        _compact(table, partition, target_bytes)
    table.load()
    return Optimized(table.shape.name, before, len(table.files()))


def vacuum(table: LakeTable, *, keep_hours: int = KEEP_HOURS, dry_run: bool = False) -> list[str]:
    """Remove files that no version of the last hours has, and what killed tasks left; which ones."""
    table.load()
    try:
        removed = table.delta.vacuum(
            keep_hours,
            dry_run=dry_run,
            enforce_retention_duration=False,
            full=True,
            commit_properties=upkeep_properties(table.said),
        )
    except (DeltaError, OSError) as error:
        raise TableError(f"{table.where}: {one_line(error)}") from None
    table.load()
    return removed


def _crowded(files: Sequence[DataFile], target_bytes: int, fewest: int) -> list[list[tuple[str, str, Any]]]:
    small = Counter(
        tuple((name, value) for name, value in file.partition.items() if name != BUCKET)
        for file in files
        if file.size < target_bytes // 2 and not file.partition.get(BUCKET)
    )
    # A partition without a value cannot be named to Delta: those are of events that cannot be read.
    return [
        [(name, "=", value) for name, value in partition]
        for partition, count in small.items()
        if count >= fewest and all(value is not None for _, value in partition)
    ]


def _compact(table: LakeTable, partition: list[tuple[str, str, Any]], target_bytes: int) -> None:
    for left in range(_TRIES, 0, -1):
        try:
            table.delta.optimize.compact(
                partition,
                target_size=target_bytes,
                writer_properties=WriterProperties(compression="ZSTD"),
                commit_properties=upkeep_properties(table.said),
            )
        except CommitFailedError as error:
            if left == 1:
                raise TableError(f"{table.where}: {error}") from None
        except (DeltaError, OSError) as error:
            raise TableError(f"{table.where}: {one_line(error)}") from None
        else:
            return
        table.load()
