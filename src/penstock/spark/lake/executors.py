"""Work that is done on executors, piece by piece, and tells the driver what came out."""

import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import pyarrow as pa
from pyspark.sql import SparkSession

P = TypeVar("P")
R = TypeVar("R")


def on_executors(spark: SparkSession, work: Callable[[P], R], pieces: Sequence[P]) -> list[R]:
    """What `work` makes of each piece, in a task of its own; in their order.

    A task may be run again, or twice at once: what counts is what one of its tries returned. Only pieces and
    results go through Spark: rows would be turned into those of the Java machine and back.
    """
    if not pieces:
        return []
    packed = [pickle.dumps(piece) for piece in pieces]

    def each(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            numbers = batch.column(0).to_pylist()
            # The driver's own: it is pickled there, and comes from no one else.
            done = [pickle.dumps(work(pickle.loads(packed[number]))) for number in numbers]  # noqa: S301
            yield pa.RecordBatch.from_arrays(
                [pa.array(numbers, pa.int64()), pa.array(done, pa.binary())], names=["number", "result"]
            )

    tasks = spark.range(0, len(pieces), 1, len(pieces))
    rows = tasks.mapInArrow(each, "number long, result binary").collect()
    found = {row["number"]: row["result"] for row in rows}
    return [pickle.loads(found[number]) for number in range(len(pieces))]  # noqa: S301 (as above)
