"""Rows that stay as they are: read or made once, whatever is asked of them afterwards."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession

RUNNING: Final = {
    # Methods with more bytes of code are never compiled, and run tens of times slower.
    "spark.sql.codegen.hugeMethodLimit": "8000",
    # Rows that a Python function is given at a time: what it does costs by the call.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
}


def kept(rows: DataFrame, *, on_disk: bool = False) -> DataFrame:
    """The rows themselves, without how they came about.

    A cache would not do: Spark may read the source again, and then the store has moved on; and what is made
    of the rows would be planned with all that led to them, which takes longer than the work.
    """
    level = StorageLevel.DISK_ONLY if on_disk else StorageLevel.MEMORY_AND_DISK
    with _set(rows.sparkSession, RUNNING):
        return rows.localCheckpoint(eager=True, storageLevel=level)


@contextmanager
def _set(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Settings for what is run within the block."""
    before = {name: spark.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            if old is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, old)
