"""Rows that stay as they are: read or made once, whatever is asked of them afterwards."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession

_LIMIT: Final = "spark.sql.codegen.hugeMethodLimit"
_COMPILED: Final = 8_000
"""Methods with more bytes of code are never compiled, and run tens of times slower."""


def kept(rows: DataFrame, *, on_disk: bool = False) -> DataFrame:
    """The rows themselves, without how they came about.

    A cache would not do: Spark may read the source again, and then the store has moved on; and what is made
    of the rows would be planned with all that led to them, which takes longer than the work.
    """
    level = StorageLevel.DISK_ONLY if on_disk else StorageLevel.MEMORY_AND_DISK
    with _small_methods(rows.sparkSession):
        return rows.localCheckpoint(eager=True, storageLevel=level)


@contextmanager
def _small_methods(spark: SparkSession) -> Iterator[None]:
    """Let Spark cut the code of large stages into methods that a Java machine compiles."""
    before = spark.conf.get(_LIMIT) or ""
    spark.conf.set(_LIMIT, _COMPILED)
    try:
        yield
    finally:
        spark.conf.set(_LIMIT, before)
