"""Bronze: every event as it came, with when and in which batch; and what was wrong with some, counted."""

from collections.abc import Sequence

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (everybody's name for it)
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import LongType, StructField, StructType, TimestampType

from penstock.spark.schemas import EVENTS
from penstock.spark.tables.columns import fitted, merged
from penstock.spark.tables.files import Files
from penstock.spark.tables.manifests import Manifest, QueueCount
from penstock.spark.tables.table import Batch, Table

GAP = "gap"
"""The move of a row that stands for events which were trimmed before they were read."""
SCHEMA = StructType(
    [
        *from_arrow_schema(EVENTS).fields,
        StructField("batch_id", LongType()),
        StructField("ingested_at", TimestampType()),
    ]
)


class Bronze(Table):
    """The table `events`."""

    def __init__(self, spark: SparkSession, files: Files) -> None:
        super().__init__(spark, files, "events", SCHEMA)

    def write(self, batch: Batch, rows: DataFrame) -> Manifest:
        """Write the events of one batch, and count what is in it, queue by queue."""
        if (there := self.standing(batch)) is not None:
            return there
        self.files.delete(self.folder(batch))
        stamped = rows.withColumns({"batch_id": F.lit(batch.first), "ingested_at": F.current_timestamp()})
        # An older or newer source may lack columns or have more.
        stamped = fitted(stamped, merged(self.where, [SCHEMA, rows.schema]))
        schema, files = self.stage(batch, stamped)
        # From the files: the rows themselves would be read from the store again.
        written = self._files(schema, [each.path for each in files])
        return self.commit(batch, schema, files, self._counts(written))

    def since(self, batch: int) -> DataFrame:
        """The events of this batch and of those after it."""
        chosen = [each for each in self.live() if each.last >= batch]
        return self.read(chosen).where(F.col("batch_id") >= batch)

    def _files(self, schema: StructType, paths: Sequence[str]) -> DataFrame:
        if not paths:
            return self.spark.createDataFrame([], schema)
        return self.spark.read.schema(schema).parquet(*(self.files.url(path) for path in paths))

    def _counts(self, rows: DataFrame) -> tuple[QueueCount, ...]:
        is_event = F.col("problem").isNull() & ~F.col("move").eqNullSafe(GAP)
        seq = F.when(is_event, F.col("seq"))
        found = (
            rows.groupBy("tenant", "queue")
            .agg(
                F.min(seq).alias("first"),
                F.max(seq).alias("last"),
                F.count("*").alias("rows"),
                (F.count(seq) - F.count_distinct(seq)).alias("duplicates"),
                F.count(F.when(F.col("move") == GAP, 1)).alias("gaps"),
                F.max(F.unix_millis(F.when(is_event, F.col("at")))).alias("newest"),
                F.count(F.when(F.col("problem").isNotNull() & ~F.col("move").eqNullSafe(GAP), 1)).alias(
                    "problems"
                ),
            )
            .collect()
        )
        counts = [QueueCount(**each.asDict()) for each in found]
        # Here rather than by Spark, which would look through all rows once more to sort a few.
        return self._with_earlier(
            rows, sorted(counts, key=lambda each: (each.tenant or "", each.queue or ""))
        )

    def _with_earlier(self, rows: DataFrame, counts: list[QueueCount]) -> tuple[QueueCount, ...]:
        """The counts with duplicates of earlier batches; only those with overlapping numbers are read."""
        near = [
            each
            for each in self.live()
            if any(_overlap(count, other) for count in counts for other in each.queues)
        ]
        if not near:
            return tuple(counts)
        keys = ["tenant", "queue", "seq"]
        firsts = [count.first for count in counts if count.first is not None]
        lasts = [count.last for count in counts if count.last is not None]
        is_near = F.col("problem").isNull() & F.col("seq").between(min(firsts), max(lasts))
        old = self.read(near).where(is_near).select(keys)
        again = rows.where(is_near).select(keys).distinct().join(old, keys, "left_semi")
        found = {(row[0], row[1]): row[2] for row in again.groupBy("tenant", "queue").count().collect()}
        return tuple(
            msgspec.structs.replace(
                count, duplicates=count.duplicates + found.get((count.tenant, count.queue), 0)
            )
            for count in counts
        )


def _overlap(one: QueueCount, other: QueueCount) -> bool:
    if one.first is None or one.last is None or other.first is None or other.last is None:
        return False
    is_same = (one.tenant, one.queue) == (other.tenant, other.queue)
    return is_same and one.first <= other.last and other.first <= one.last
