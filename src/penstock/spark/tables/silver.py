"""Silver: from the events of bronze one row per attempt, and one per job and drive, batch by batch."""

from collections.abc import Callable, Mapping
from typing import Final

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (everybody's name for it)

from penstock.spark.tables import attempts, jobs
from penstock.spark.tables.bronze import GAP, Bronze
from penstock.spark.tables.files import Files
from penstock.spark.tables.table import Batch, Table

Step = Callable[[DataFrame], DataFrame]


class Shape(msgspec.Struct, frozen=True):
    """How a table is made: events become pieces, pieces are merged, and at last made whole."""

    pieces: Step
    merge: Step
    whole: Step

    def of(self, events: DataFrame) -> DataFrame:
        """The table of these events, without any files: for a look, and to check the files against."""
        return self.whole(self.pieces(readable(events)))


SHAPES: Final[Mapping[str, Shape]] = {
    "attempts": Shape(attempts.pieces, attempts.merge, attempts.whole),
    "jobs": Shape(jobs.pieces, jobs.merge, jobs.whole),
}


def readable(events: DataFrame) -> DataFrame:
    """The events that say something: neither gaps nor what could not be read."""
    return events.where(F.col("problem").isNull() & ~F.col("move").eqNullSafe(GAP))


class Silver(Table):
    """The table `attempts` or `jobs`. A batch of it is one of bronze, or several at once."""

    keeps_rows = False

    def __init__(self, spark: SparkSession, files: Files, name: str) -> None:
        super().__init__(spark, files, name)
        self.shape = SHAPES[name]

    def follow(self, bronze: Bronze, query: str) -> None:
        """Take over what is new in bronze. Only those events are read, whatever jobs they are about."""
        first, last = self.last() + 1, bronze.last()
        if first <= last:
            new = bronze.since(first).where(F.col("batch_id") <= last)
            self.write(Batch(first=first, last=last, query=query), self.shape.pieces(readable(new)))

    def rows(self) -> DataFrame:
        """One row per attempt, or per job and drive."""
        return self.shape.whole(self.read())

    def merged(self, rows: DataFrame) -> DataFrame:
        """Pieces of the same row made one."""
        return self.shape.merge(rows)
