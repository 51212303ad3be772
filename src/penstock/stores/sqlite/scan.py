"""What Spark reads of a file: ranges of the rows of its jobs, and the statements that read them."""

import sqlite3
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec

from penstock.core.states import State
from penstock.stores.rows import QUARANTINED
from penstock.stores.scan_request import ScanRequest, Value
from penstock.stores.sql_scan import LARGE, is_text, misfit, stored_columns, where
from penstock.stores.sqlite.faults import translated

BUSY_TIMEOUT_MS: Final = 30_000
BATCH_ROWS: Final = 16_384
BATCH_BYTES: Final = 8 << 20
_INDEXED: Final = frozenset({State.DEAD, State.ACTIVE, State.DELAYED, State.BLOCKED})
_NO_TEXT: Final = "''"


class RowRange(msgspec.Struct, frozen=True):
    """Rows from `first` to `last` of jobs that were there at `bound`, to be read in batches."""

    first: int
    last: int
    bound: int
    batch_rows: int


class ScanSnapshot:
    """The file at one moment, for planning."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def queues(self) -> dict[int, tuple[str, str]]:
        """The tenant and the name of each queue, by its number."""
        rows = self._connection.execute("SELECT n, tenant, name FROM queue")
        return {number: (tenant, name) for number, tenant, name in rows}

    def ranges(self, request: ScanRequest, split: Callable[[int], int]) -> list[RowRange]:
        """Equal ranges of rows, up to the newest one; `split` says how many for so many rows to read."""
        (offset,) = self._one("SELECT value FROM meta WHERE name = 'clock_offset_ms'")
        (newest_us,) = self._one("SELECT max(at_us) FROM queue")
        first, last = self._one("SELECT min(n), max(n) FROM job")
        if first is None:
            return []
        # A number is used again once the newest row is deleted; the time tells such a row from the old one.
        bound = max(time.time_ns() // 1_000_000 + offset, (newest_us or 0) // 1000)
        numbers = rows = last - first + 1
        if (state := _indexed(request)) is not None:
            (rows,) = self._one(
                f"SELECT count(*) FROM job INDEXED BY job_{state} WHERE state = '{state}'"  # noqa: S608 (a state)
            )
        (file_bytes,) = self._one("SELECT page_count * page_size FROM pragma_page_count, pragma_page_size")
        batch_rows = BATCH_ROWS
        if not LARGE.isdisjoint(request.columns):
            batch_rows = max(64, min(BATCH_ROWS, BATCH_BYTES * numbers // file_bytes))
        step = -(-numbers // split(rows))
        return [
            RowRange(start, min(start + step - 1, last), bound, batch_rows)
            for start in range(first, last + 1, step)
        ]

    def _one(self, sql: str) -> tuple[Any, ...]:
        row: tuple[Any, ...] = self._connection.execute(sql).fetchone()
        return row


class SqliteScan:
    """Reads one file without opening its store: tasks of Spark come and go, each with its own connection."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.uri = f"{path.absolute().as_uri()}?mode=ro"

    @contextmanager
    def snapshot(self) -> Iterator[ScanSnapshot]:
        """The file as it is now, for the time of the block."""
        try:
            with closing(self._connect()) as connection:
                connection.execute("BEGIN")
                yield ScanSnapshot(connection)
        except sqlite3.Error as error:
            raise translated(error, str(self._path)) from None

    def statement(self, request: ScanRequest, queues: Collection[int], rows: RowRange) -> str:
        """The statement that reads a range. Its first row only shows the types of the columns: drop it."""
        columns = stored_columns(request)
        # Drivers take the types of columns from the values that they see first.
        types = ", ".join(f"{_NO_TEXT if is_text(column) else 0} AS {column}" for column in columns)
        return f"SELECT {types} UNION ALL {_select(columns, request, queues, rows)}"

    def damage(self, request: ScanRequest, queues: Collection[int], rows: RowRange) -> str | None:
        """The first job with a value that does not fit its column: a file takes any. None where all do."""
        columns = stored_columns(request)
        try:
            with closing(self._connect()) as connection:
                connection.text_factory = lambda raw: raw.decode(errors="replace")
                for job, *values in connection.execute(_select(["id", *columns], request, queues, rows)):
                    for column, value in zip(columns, values, strict=True):
                        if (why := misfit(column, value)) is not None:
                            return f"job {job}: column {column}: {why}"
        except sqlite3.Error as error:
            raise translated(error, str(self._path)) from None
        return None

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self.uri, uri=True, timeout=BUSY_TIMEOUT_MS / 1000)


def _select(columns: Sequence[str], request: ScanRequest, queues: Collection[int], rows: RowRange) -> str:
    # By the index of the state, or else straight through the rows: never by the ids of a whole queue.
    index = _indexed(request)
    clauses = [
        *([] if index is None else [f"state = {_literal(index)}"]),
        f"n BETWEEN {rows.first} AND {rows.last}",
        f"queue IN ({', '.join(map(str, queues))})",
        f"state <> '{QUARANTINED}'",
        f"{'ended_at' if request.table == 'dlq' else 'enqueued_at'} <= {rows.bound}",
        *where(request.conditions, _literal),
    ]
    source = "job NOT INDEXED" if index is None else f"job INDEXED BY job_{index}"
    return f"SELECT {', '.join(columns)} FROM {source} WHERE {' AND '.join(clauses)}"  # noqa: S608 (constants and literals)


def _indexed(request: ScanRequest) -> State | None:
    """The one state of which rows are requested, where it has an index of its own."""
    found = tuple(request.states)
    return found[0] if len(found) == 1 and found[0] in _INDEXED else None


def _literal(value: Value) -> str:
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return str(int(value))
