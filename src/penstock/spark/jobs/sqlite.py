"""Jobs of a SQLite file: ranges of its rows, by the Arrow driver."""

import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

import adbc_driver_sqlite
import adbc_driver_sqlite.dbapi
import pyarrow as pa

from penstock.core.errors import StoreError, StoreFormatError
from penstock.core.states import State
from penstock.spark.jobs import sql
from penstock.spark.jobs.pieces import SqlitePiece, pieces_for
from penstock.spark.jobs.wanted import Value, Wanted
from penstock.spark.options import SourceOptions
from penstock.spark.stores import chosen, refuse_missing_file, run
from penstock.stores.open import sqlite_path
from penstock.stores.ready import refuse_unready
from penstock.stores.rows import QUARANTINED
from penstock.stores.sqlite.faults import translated

PIECE_ROWS: Final = 250_000
BATCH_ROWS: Final = 16_384
BATCH_BYTES: Final = 8 << 20
_PATIENCE_MS: Final = 30_000
_INDEXED: Final = frozenset({State.DEAD, State.ACTIVE, State.DELAYED, State.BLOCKED})
_NO_TEXT: Final = "''"


def plan(options: SourceOptions, wanted: Wanted) -> list[SqlitePiece]:
    """Equal ranges of rows, up to the newest one there is now."""
    path = _path(options)
    run(refuse_unready(options.store_url))
    try:
        with closing(sqlite3.connect(_uri(path), uri=True, timeout=_PATIENCE_MS / 1000)) as connection:
            return _pieces(connection, options, wanted)
    except sqlite3.Error as error:
        raise translated(error, str(path)) from None


def _pieces(connection: sqlite3.Connection, options: SourceOptions, wanted: Wanted) -> list[SqlitePiece]:
    connection.execute("BEGIN")
    known = connection.execute("SELECT n, tenant, name FROM queue").fetchall()
    queues = chosen({n: (tenant, name) for n, tenant, name in known}, options, wanted.has)
    (offset,) = connection.execute("SELECT value FROM meta WHERE name = 'clock_offset_ms'").fetchone()
    (newest_us,) = connection.execute("SELECT max(at_us) FROM queue").fetchone()
    first, last = connection.execute("SELECT min(n), max(n) FROM job").fetchone()
    if not queues or first is None:
        return []
    # A number is used again once the newest row is deleted; the time tells such a row from the one before.
    bound = max(time.time_ns() // 1_000_000 + offset, (newest_us or 0) // 1000)
    rows = last - first + 1
    if (state := _indexed(wanted)) is not None:
        said = f"SELECT count(*) FROM job INDEXED BY job_{state} WHERE state = '{state}'"  # noqa: S608 (a state)
        (rows,) = connection.execute(said).fetchone()
    (file_bytes,) = connection.execute(
        "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size"
    ).fetchone()
    batch_rows = BATCH_ROWS
    if not sql.LARGE.isdisjoint(wanted.columns):
        batch_rows = max(64, min(BATCH_ROWS, BATCH_BYTES * (last - first + 1) // file_bytes))
    step = -(-(last - first + 1) // pieces_for(rows, PIECE_ROWS, options.min_partitions))
    return [
        SqlitePiece(queues, start, min(start + step - 1, last), bound, batch_rows)
        for start in range(first, last + 1, step)
    ]


def read(options: SourceOptions, wanted: Wanted, piece: SqlitePiece) -> Iterator[pa.RecordBatch]:
    """The rows of a piece."""
    path = _path(options)
    try:
        with (
            adbc_driver_sqlite.dbapi.connect(_uri(path)) as connection,
            connection.cursor() as cursor,
        ):
            cursor.execute(f"PRAGMA busy_timeout = {_PATIENCE_MS}")
            cursor.fetchall()
            batch_rows = adbc_driver_sqlite.StatementOptions.BATCH_ROWS.value
            cursor.adbc_statement.set_options(**{batch_rows: str(piece.batch_rows)})
            cursor.execute(_statement(wanted, piece))
            is_first = True
            for batch in cursor.fetch_record_batch():
                found = batch.slice(1) if is_first else batch
                is_first = False
                if found.num_rows:
                    yield sql.shaped(found, wanted, piece.queues)
    except StoreFormatError as error:
        raise StoreFormatError(f"{path}: {error}") from None
    except (adbc_driver_sqlite.dbapi.Error, pa.ArrowException) as error:
        if (damage := _damage(path, wanted, piece)) is not None:
            raise StoreFormatError(f"{path}: {damage}") from None
        raise StoreError(f"{path}: could not be read: {error}") from None


def _damage(path: Path, wanted: Wanted, piece: SqlitePiece) -> str | None:
    """The first job with a value that does not fit its column: a file takes any. None where all do."""
    columns = sql.stored_columns(wanted)
    try:
        with closing(sqlite3.connect(_uri(path), uri=True, timeout=_PATIENCE_MS / 1000)) as connection:
            connection.text_factory = lambda raw: raw.decode(errors="replace")
            for job, *values in connection.execute(_rows(["id", *columns], wanted, piece)):
                for column, value in zip(columns, values, strict=True):
                    if (why := sql.misfit(column, value)) is not None:
                        return f"job {job}: column {column}: {why}"
    except sqlite3.Error as error:
        raise translated(error, str(path)) from None
    return None


def _statement(wanted: Wanted, piece: SqlitePiece) -> str:
    columns = sql.stored_columns(wanted)
    # The driver takes the types of columns from the values it sees first: this row shows them; it is dropped.
    types = ", ".join(f"{_NO_TEXT if sql.is_text(column) else 0} AS {column}" for column in columns)
    return f"SELECT {types} UNION ALL {_rows(columns, wanted, piece)}"


def _rows(columns: Sequence[str], wanted: Wanted, piece: SqlitePiece) -> str:
    numbers = ", ".join(map(str, piece.queues))
    # By the index of the state, or else straight through the rows: never by the ids of a whole queue.
    index = _indexed(wanted)
    clauses = [
        *([] if index is None else [f"state = {_literal(index)}"]),
        f"n BETWEEN {piece.first} AND {piece.last}",
        f"queue IN ({numbers})",
        f"state <> '{QUARANTINED}'",
        f"{'ended_at' if wanted.table == 'dlq' else 'enqueued_at'} <= {piece.bound}",
        *sql.where(wanted.conditions, _literal),
    ]
    rows = "job NOT INDEXED" if index is None else f"job INDEXED BY job_{index}"
    return f"SELECT {', '.join(columns)} FROM {rows} WHERE {' AND '.join(clauses)}"  # noqa: S608 (constants and literals)


def _indexed(wanted: Wanted) -> State | None:
    """The one state of which rows are wanted, where it has an index of its own."""
    found = tuple(wanted.states)
    return found[0] if len(found) == 1 and found[0] in _INDEXED else None


def _literal(value: Value) -> str:
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return str(int(value))


def _path(options: SourceOptions) -> Path:
    url = options.store_url
    refuse_missing_file(url)
    return Path(sqlite_path(url))


def _uri(path: Path) -> str:
    return f"{path.absolute().as_uri()}?mode=ro"
