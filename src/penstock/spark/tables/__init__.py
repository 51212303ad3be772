"""The pipeline's tables on files: `events` as they came, `attempts` and `jobs` made from them."""

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


def open_table(spark: "SparkSession", folder: str, name: str) -> "Table":
    """The table of that name, there or not."""
    from penstock.spark.tables.bronze import Bronze
    from penstock.spark.tables.files import files_at
    from penstock.spark.tables.silver import Silver

    if name not in NAMES:
        raise OptionError("table", name, f"one of {', '.join(NAMES)}")
    files = files_at(f"{folder.rstrip('/')}/{name}", spark)
    return Bronze(spark, files) if name == "events" else Silver(spark, files, name)
