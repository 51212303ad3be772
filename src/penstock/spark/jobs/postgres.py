"""Jobs of a PostgreSQL store: ranges of ids, by the Arrow driver."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import urlencode

import adbc_driver_postgresql
import adbc_driver_postgresql.dbapi
import pyarrow as pa

from penstock.core.errors import (
    ConfigError,
    PenstockError,
    StoreError,
    StoreFormatError,
    StoreUnavailableError,
)
from penstock.core.states import State
from penstock.core.store_url import hide_secrets
from penstock.spark.jobs import sql
from penstock.spark.jobs.pieces import MOST_PIECES, PostgresPiece, Span, evenly, pieces_for
from penstock.spark.jobs.wanted import Value, Wanted
from penstock.spark.options import SourceOptions
from penstock.spark.stores import chosen, run
from penstock.stores.postgres.address import Address, address_of
from penstock.stores.ready import refuse_unready
from penstock.stores.rows import QUARANTINED

PIECE_BYTES: Final = 32 << 20
BATCH_BYTES: Final = 4 << 20
_PAGE: Final = 8192
_PAGES_LOOKED_AT: Final = 32
"""Of each piece, where its ends are looked for."""
_IDS_LOOKED_AT: Final = 10_000
_OF_ENDED: Final = frozenset({"ended_at", "result"})
"""Columns that live jobs do not have."""
_DEAD: Final = frozenset({State.DEAD})
_ENDED: Final = frozenset(state for state in State if state.is_ended)


def plan(options: SourceOptions, wanted: Wanted) -> list[PostgresPiece]:
    """Ranges of ids of about equal size, and the time up to which jobs count."""
    url = options.store_url
    # The store's own connection says best why a server cannot be used.
    run(refuse_unready(url))
    address = address_of(url)
    with _cursor(url, address) as cursor:
        return _pieces(cursor, address, options, wanted)


def _pieces(cursor: Any, address: Address, options: SourceOptions, wanted: Wanted) -> list[PostgresPiece]:
    at = f'"{address.schema}"'
    known = _rows(cursor, f"SELECT n, tenant, name FROM {at}.queue")  # noqa: S608 (a checked name)
    queues = chosen({n: (tenant, name) for n, tenant, name in known}, options, wanted.has)
    [(bound,)] = _rows(cursor, f"SELECT {at}.now_us(0) / 1000")
    if not queues:
        return []
    tables = _tables(wanted, at)
    size_of = "pg_relation_size" if sql.LARGE.isdisjoint(wanted.columns) else "pg_table_size"
    sizes = [int(_rows(cursor, f"SELECT {size_of}('{table}')")[0][0]) for table in tables]
    pieces, least = pieces_for(sum(sizes), PIECE_BYTES, None), min(options.min_partitions or 1, MOST_PIECES)
    cuts = []
    if max(pieces, least) > 1:
        cuts = _cuts(cursor, tables, sizes, wanted, list(queues), pieces, least)
    # No job that comes from now on has this time any more.
    time.sleep(0.001)
    return [PostgresPiece(queues, spans, bound) for spans in _spans(sorted(queues), cuts)]


def _cuts(
    cursor: Any,
    tables: Sequence[str],
    sizes: Sequence[int],
    wanted: Wanted,
    numbers: Sequence[int],
    pieces: int,
    least: int,
) -> list[tuple[int, str]]:
    """Where to cut the jobs, in the order of queues and ids: each piece has about as many wanted ones.

    `pieces` would be right if all jobs were wanted.
    """
    pages = max(sum(sizes) // _PAGE, 1)
    percent = min(100.0, 100.0 * _PAGES_LOOKED_AT * max(pieces, least) / pages)
    ours = _in("queue", numbers)
    found = _looked(cursor, tables, wanted, f"TABLESAMPLE SYSTEM ({percent}) WHERE {ours}")
    if len(found) < max(pieces, least):
        # Few among the jobs of others: those are found by the index.
        found = _looked(cursor, tables, wanted, f"WHERE {ours} LIMIT {_IDS_LOOKED_AT}")
    places = [(queue, job) for queue, job, is_wanted in found if is_wanted]
    if found:
        pieces = max(least, -(-pieces * len(places) // len(found)))
    if len(places) < pieces:
        places = [(queue, job) for queue, job, _ in found]
    return [places[at] for at in evenly(len(places), pieces)]


def _looked(
    cursor: Any, tables: Sequence[str], wanted: Wanted, how: str
) -> list[tuple[int, str, bool | None]]:
    """Queue and id of some jobs in their order, and whether they are wanted."""
    told = [each for each in wanted.conditions if each.column not in _OF_ENDED]
    fits = " AND ".join(sql.where(told, _literal)) or "true"
    looks = " UNION ALL ".join(f"(SELECT queue, id, {fits} AS fits FROM {table} {how})" for table in tables)  # noqa: S608 (constants and literals)
    return _rows(cursor, f"SELECT queue, id, fits FROM ({looks}) AS look ORDER BY queue, id")  # noqa: S608 (constants)


def _spans(numbers: Sequence[int], cuts: Sequence[tuple[int, str]]) -> list[tuple[Span, ...]]:
    """The spans between the cuts."""
    starts: list[tuple[int, str | None]] = [(numbers[0], None), *cuts]
    ends: list[tuple[int, str] | None] = [*cuts, None]
    out: list[tuple[Span, ...]] = []
    for (first, from_id), end in zip(starts, ends, strict=True):
        last, to_id = (numbers[-1], None) if end is None else end
        if first == last:
            out.append((Span((first,), from_id, to_id),))
            continue
        between = tuple(n for n in numbers if first < n < last)
        spans = [Span((first,), from_id), Span(between), Span((last,), None, to_id)]
        out.append(tuple(span for span in spans if span.numbers))
    return out


def read(options: SourceOptions, wanted: Wanted, piece: PostgresPiece) -> Iterator[pa.RecordBatch]:
    """The rows of a piece. A statement sees a job in exactly one of the tables that it moves through."""
    url = options.store_url
    address = address_of(url)
    with _cursor(url, address) as cursor:
        for span in piece.spans:
            cursor.execute(_statement(wanted, piece, span, f'"{address.schema}"'))
            for batch in cursor.fetch_record_batch():
                try:
                    shaped = sql.shaped(batch, wanted, piece.queues)
                except StoreFormatError as error:
                    raise StoreFormatError(f"the server at {address.shown}: {error}") from None
                yield shaped


def _statement(wanted: Wanted, piece: PostgresPiece, span: Span, at: str) -> str:
    table = "dead" if wanted.states == _DEAD else "ended" if wanted.states <= _ENDED else "record"
    clauses = [
        _in("queue", span.numbers),
        f"state <> '{QUARANTINED}'",
        f"{'ended_at' if wanted.table == 'dlq' else 'enqueued_at'} <= {piece.bound}",
        *sql.where(wanted.conditions, _literal),
    ]
    if span.first is not None:
        clauses.append(f"id >= {_literal(span.first)}")
    if span.end is not None:
        clauses.append(f"id < {_literal(span.end)}")
    columns = ", ".join(sql.stored_columns(wanted))
    return f"SELECT {columns} FROM {at}.{table} WHERE {' AND '.join(clauses)}"  # noqa: S608 (constants and literals)


def _tables(wanted: Wanted, at: str) -> list[str]:
    if wanted.states == _DEAD:
        return [f"{at}.dead"]
    ended = [f"{at}.done", f"{at}.dead"]
    return ended if wanted.states <= _ENDED else [f"{at}.job", *ended]


@contextmanager
def _cursor(url: str, address: Address) -> Iterator[Any]:
    """A transaction that only reads, in the role of the url; the driver's errors without secrets."""
    joint = "&" if "?" in address.conninfo else "?"
    timeout = max(1, round(address.numbers.connect_timeout))
    more = urlencode({"connect_timeout": timeout, "fallback_application_name": "penstock-spark"})
    try:
        with (
            adbc_driver_postgresql.dbapi.connect(f"{address.conninfo}{joint}{more}") as connection,
            connection.cursor() as cursor,
        ):
            cursor.execute("SET TRANSACTION READ ONLY")
            if address.role is not None:
                cursor.execute(f'SET LOCAL ROLE "{address.role}"')
            hint = adbc_driver_postgresql.StatementOptions.BATCH_SIZE_HINT_BYTES.value
            cursor.adbc_statement.set_options(**{hint: str(BATCH_BYTES)})
            yield cursor
    except adbc_driver_postgresql.dbapi.Error as error:
        said = " ".join(hide_secrets(str(error), url).split())
        raise _kind(error.sqlstate or "", said)(f"the server at {address.shown}: {said}") from None


def _kind(code: str, said: str) -> type[PenstockError]:
    if code.startswith(("28", "42501")) or "authentication failed" in said:
        return ConfigError
    return StoreUnavailableError if not code or code.startswith(("08", "53", "57")) else StoreError


def _rows(cursor: Any, statement: str) -> list[Any]:
    cursor.execute(statement)
    return list(cursor.fetchall())


def _in(column: str, numbers: Sequence[int]) -> str:
    return (
        f"{column} = {numbers[0]}" if len(numbers) == 1 else f"{column} IN ({', '.join(map(str, numbers))})"
    )


def _literal(value: Value) -> str:
    if isinstance(value, str):
        return "E'" + value.replace("\\", "\\\\").replace("'", "''") + "'"
    return str(value)
