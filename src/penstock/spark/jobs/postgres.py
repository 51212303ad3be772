"""Jobs of a PostgreSQL store: one task for each piece of the store's scan."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from penstock.core.errors import StoreFormatError
from penstock.core.job import QueueRef
from penstock.spark.jobs import sql
from penstock.spark.jobs.pieces import MOST_PIECES, pieces_for
from penstock.spark.options import SourceOptions
from penstock.spark.stores import chosen, run
from penstock.stores.postgres.scan import PostgresScan, Span
from penstock.stores.ready import refuse_unready
from penstock.stores.scan_request import ScanRequest

PIECE_BYTES: Final = 32 << 20


@dataclass(frozen=True)
class PostgresPiece(InputPartition):
    """Spans of ids, and the time up to which jobs count."""

    queues: dict[int, QueueRef]
    spans: tuple[Span, ...]
    bound: int


def plan(options: SourceOptions, request: ScanRequest) -> list[PostgresPiece]:
    """Ranges of ids of about equal size, and the time up to which jobs count."""
    url = options.store_url
    # The store's own connection says best why a server cannot be used.
    run(refuse_unready(url))
    found = PostgresScan(url).plan(
        request,
        lambda known: chosen(known, options, request.has),
        lambda size: pieces_for(size, PIECE_BYTES, None),
        min(options.min_partitions or 1, MOST_PIECES),
    )
    return [PostgresPiece(found.queues, spans, found.bound) for spans in found.pieces]


def read(options: SourceOptions, request: ScanRequest, piece: PostgresPiece) -> Iterator[pa.RecordBatch]:
    """The rows of a piece."""
    scan = PostgresScan(options.store_url)
    for batch in scan.read(request, piece.spans, piece.bound):
        try:
            shaped = sql.shaped(batch, request, piece.queues)
        except StoreFormatError as error:
            raise StoreFormatError(f"the server at {scan.shown}: {error}") from None
        yield shaped
