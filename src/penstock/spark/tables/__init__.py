"""The pipeline's tables on files: `events` as they came, `attempts` and `jobs` made from them."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from penstock.core.errors import OptionError, TableError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.spark.tables.compaction import Compacted
    from penstock.spark.tables.table import Table

NAMES: Final = ("events", "attempts", "jobs")


def read(spark: "SparkSession", folder: str, name: str) -> "DataFrame":
    """A table as its manifests stand now; TableError where there is none.

    `folder` is what `penstock spark run --out` was given.
    """
    table = open_table(spark, folder, name)
    if not table.live():
        raise TableError(f"{table.where}: there is no table, or nothing in it yet")
    return table.rows()


def compact(
    spark: "SparkSession",
    folder: str,
    name: str,
    *,
    target_bytes: int | None = None,
    grace_ms: int | None = None,
) -> "Compacted":
    """Make small batches of a table large, and remove what was replaced before the grace began."""
    from penstock.spark.tables import compaction

    return compaction.compact(
        open_table(spark, folder, name),
        target_bytes=compaction.TARGET_BYTES if target_bytes is None else target_bytes,
        grace_ms=compaction.GRACE_MS if grace_ms is None else grace_ms,
    )


def refuse_none(folder: str, names: Sequence[str], spark: "SparkSession | None" = None) -> None:
    """OptionError for a folder with none of these tables; an address takes a session to look there."""
    from penstock.spark.tables.files import files_at
    from penstock.spark.tables.manifests import FOLDER

    for name in names:
        _refuse_unknown(name)
    if not any(files_at(f"{folder.rstrip('/')}/{name}", spark).list(FOLDER) for name in names):
        raise OptionError("--out", folder, "a folder with tables of `penstock spark run`")


def open_table(spark: "SparkSession", folder: str, name: str) -> "Table":
    """The table of that name, there or not."""
    from penstock.spark.tables.bronze import Bronze
    from penstock.spark.tables.files import files_at
    from penstock.spark.tables.silver import Silver

    _refuse_unknown(name)
    files = files_at(f"{folder.rstrip('/')}/{name}", spark)
    return Bronze(spark, files) if name == "events" else Silver(spark, files, name)


def _refuse_unknown(name: str) -> None:
    if name not in NAMES:
        raise OptionError("table", name, f"one of {', '.join(NAMES)}")
