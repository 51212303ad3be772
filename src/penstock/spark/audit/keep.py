"""Rows that stay as they are: read or made once, whatever is asked of them afterwards."""

from pyspark import StorageLevel
from pyspark.sql import DataFrame


def kept(rows: DataFrame, *, on_disk: bool = False) -> DataFrame:
    """The rows themselves, without how they came about.

    A cache would not do: Spark may read the source again, and then the store has moved on; and what is made
    of the rows would be planned with all that led to them, which takes longer than the work.
    """
    level = StorageLevel.DISK_ONLY if on_disk else StorageLevel.MEMORY_AND_DISK
    return rows.localCheckpoint(eager=True, storageLevel=level)
