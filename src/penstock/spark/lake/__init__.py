"""A lake: the event log as Delta tables, in which every reader finds each event, attempt and job once.

`bronze/events` has events as they came, `silver/attempts` and `silver/jobs` are merged from them. Names are
imported when they are first used: neither Spark nor Delta is needed to import this.

Begin reading in `bronze.py`, which brings a batch of events with the position in the log in one commit, then
`silver/` and `table.py`.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from penstock.core.errors import ConfigError
from penstock.core.extras import install_command

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.spark.lake.lake import Lake
    from penstock.spark.lake.upkeep import Optimized
    from penstock.spark.lake.versions import Together

NAMES: Final = ("events", "attempts", "jobs")


def read(spark: "SparkSession", folder: str, name: str, *, version: int | None = None) -> "DataFrame":
    """A table as it is now, or as it was with a version; TableError where there is none.

    `folder` is what `penstock spark run --out` was given. The DataFrame is of that one version, however long
    it is used; files of old versions stay until a vacuum.
    """
    from penstock.spark.lake.reading import rows_of

    return rows_of(spark, folder, name, version)


def events(spark: "SparkSession", folder: str, *, after_batch: int = -1) -> "DataFrame":
    """The table `events`, with every event once: of the batches after this one. An audit begins here."""
    found = read(spark, folder, "events")
    return found if after_batch < 0 else found.where(found["batch_id"] > after_batch)


def open_lake(folder: str) -> "Lake":
    """The tables in a folder; TableError where they are not there, or not a lake's."""
    try:
        from penstock.spark.lake.lake import Lake
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("penstock"):
            raise
        raise ConfigError(f"A lake needs the package {error.name}: {install_command('spark')}") from error
    from penstock.spark.lake.folder import folder_at

    lake = Lake(folder_at(folder))
    lake.open()
    return lake


def optimize(folder: str, names: Sequence[str] = (), *, target_bytes: int | None = None) -> "list[Optimized]":
    """Join the small files of the tables, or of some of them."""
    lake = open_lake(folder)
    from penstock.spark.lake import upkeep
    from penstock.spark.lake.schemas import shapes_of

    target = upkeep.TARGET_BYTES if target_bytes is None else target_bytes
    return [upkeep.optimize(lake.table(shape.name), target_bytes=target) for shape in shapes_of(names)]


def vacuum(
    folder: str, names: Sequence[str] = (), *, keep_hours: int | None = None, dry_run: bool = False
) -> dict[str, list[str]]:
    """Remove files that no version of the last hours needs; which ones, by table."""
    lake = open_lake(folder)
    from penstock.spark.lake import upkeep
    from penstock.spark.lake.schemas import shapes_of

    keep = upkeep.KEEP_HOURS if keep_hours is None else keep_hours
    return {
        shape.name: upkeep.vacuum(lake.table(shape.name), keep_hours=keep, dry_run=dry_run)
        for shape in shapes_of(names)
    }


def history(folder: str, limit: int = 20) -> "list[Together]":
    """The versions of the tables that belong together, newest first."""
    from penstock.spark.lake.versions import together

    return together(open_lake(folder), limit)
