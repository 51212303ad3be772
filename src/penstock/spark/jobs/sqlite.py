"""Jobs of a SQLite file: ranges of its rows, by the Arrow driver."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import adbc_driver_sqlite
import adbc_driver_sqlite.dbapi
import pyarrow as pa

from penstock.core.errors import StoreError, StoreFormatError
from penstock.spark.jobs import sql
from penstock.spark.jobs.pieces import SqlitePiece, pieces_for
from penstock.spark.options import SourceOptions
from penstock.spark.stores import chosen, refuse_missing_file, run
from penstock.stores.ready import refuse_unready
from penstock.stores.scan_request import ScanRequest
from penstock.stores.sqlite.address import path_of
from penstock.stores.sqlite.scan import BUSY_TIMEOUT_MS, SqliteScan

PIECE_ROWS: Final = 250_000


def plan(options: SourceOptions, request: ScanRequest) -> list[SqlitePiece]:
    """Equal ranges of rows, up to the newest one there is now."""
    path = _path(options)
    run(refuse_unready(options.store_url))
    with SqliteScan(path).snapshot() as snapshot:
        queues = chosen(snapshot.queues(), options, request.has)
        if not queues:
            return []
        ranges = snapshot.ranges(request, lambda rows: pieces_for(rows, PIECE_ROWS, options.min_partitions))
        return [SqlitePiece(queues, rows) for rows in ranges]


def read(options: SourceOptions, request: ScanRequest, piece: SqlitePiece) -> Iterator[pa.RecordBatch]:
    """The rows of a piece."""
    path = _path(options)
    scan = SqliteScan(path)
    try:
        with (
            adbc_driver_sqlite.dbapi.connect(scan.uri) as connection,
            connection.cursor() as cursor,
        ):
            cursor.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
            cursor.fetchall()
            batch_rows = adbc_driver_sqlite.StatementOptions.BATCH_ROWS.value
            cursor.adbc_statement.set_options(**{batch_rows: str(piece.rows.batch_rows)})
            cursor.execute(scan.statement(request, piece.queues, piece.rows))
            is_first = True
            for batch in cursor.fetch_record_batch():
                found = batch.slice(1) if is_first else batch
                is_first = False
                if found.num_rows:
                    yield sql.shaped(found, request, piece.queues)
    except StoreFormatError as error:
        raise StoreFormatError(f"{path}: {error}") from None
    except (adbc_driver_sqlite.dbapi.Error, pa.ArrowException) as error:
        if (damage := scan.damage(request, piece.queues, piece.rows)) is not None:
            raise StoreFormatError(f"{path}: {damage}") from None
        raise StoreError(f"{path}: could not be read: {error}") from None


def _path(options: SourceOptions) -> Path:
    url = options.store_url
    refuse_missing_file(url)
    return Path(path_of(url))
