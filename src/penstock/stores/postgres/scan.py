"""What Spark reads of a schema: ranges of ids of its jobs, by the Arrow driver."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlencode

from penstock.core.errors import ConfigError, PenstockError, StoreError, StoreUnavailableError
from penstock.core.job import QueueRef
from penstock.core.states import State
from penstock.core.store_url import hide_secrets
from penstock.stores.postgres.address import address_of
from penstock.stores.rows import QUARANTINED
from penstock.stores.scan_request import ScanRequest, Value
from penstock.stores.sql_scan import LARGE, stored_columns, where

ChooseQueues = Callable[[Mapping[int, tuple[str, str]]], dict[int, QueueRef]]
"""Out of the tenants and names of all queues, by number, the queues that are to be scanned."""

BATCH_BYTES: Final = 4 << 20
_PAGE_BYTES: Final = 8192
_SAMPLED_PAGES: Final = 32
"""Of each piece, to find where its ids end."""
_SAMPLED_IDS: Final = 10_000
_OF_ENDED: Final = frozenset({"ended_at", "result"})
"""Columns that live jobs do not have."""
_DEAD: Final = frozenset({State.DEAD})
_ENDED: Final = frozenset(state for state in State if state.is_ended)


@dataclass(frozen=True)
class Span:
    """All jobs of these queues, or of one queue those with ids from `first` on and before `end`."""

    numbers: tuple[int, ...]
    first: str | None = None
    end: str | None = None


@dataclass(frozen=True)
class ScanPlan:
    """The queues by number, the spans of ids of each piece, and the time up to which jobs count."""

    queues: dict[int, QueueRef]
    pieces: list[tuple[Span, ...]]
    bound: int


class PostgresScan:
    """Reads one schema without opening its store: each task of Spark has a connection of its own."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._address = address_of(url)
        self._schema = f'"{self._address.schema}"'

    @property
    def shown(self) -> str:
        """The url, without secrets."""
        return self._address.shown

    def plan(
        self, request: ScanRequest, choose: ChooseQueues, split: Callable[[int], int], least: int
    ) -> ScanPlan:
        """Cut the jobs into ranges of ids of about equal size.

        `split` says in how many pieces so many bytes are to be read; there are at least `least`, where there
        are jobs enough.
        """
        with self._cursor() as cursor:
            known = _rows(cursor, f"SELECT n, tenant, name FROM {self._schema}.queue")  # noqa: S608 (a checked name)
            queues = choose({n: (tenant, name) for n, tenant, name in known})
            [(bound,)] = _rows(cursor, f"SELECT {self._schema}.now_us(0) / 1000")
            if not queues:
                return ScanPlan({}, [], bound)
            tables = self._tables(request)
            size_of = "pg_relation_size" if LARGE.isdisjoint(request.columns) else "pg_table_size"
            sizes = [int(_rows(cursor, f"SELECT {size_of}('{table}')")[0][0]) for table in tables]
            pieces = split(sum(sizes))
            cuts = []
            if max(pieces, least) > 1:
                cuts = _cuts(cursor, tables, sizes, request, list(queues), pieces, least)
            # No job that comes from now on has this time any more.
            time.sleep(0.001)
            return ScanPlan(queues, _spans(sorted(queues), cuts), bound)

    def read(self, request: ScanRequest, spans: Sequence[Span], bound: int) -> Iterator[Any]:
        """The rows of a piece as they are stored, in Arrow record batches.

        A statement sees a job in exactly one of the tables that it moves through.
        """
        with self._cursor() as cursor:
            for span in spans:
                cursor.execute(self._statement(request, span, bound))
                yield from cursor.fetch_record_batch()

    def _statement(self, request: ScanRequest, span: Span, bound: int) -> str:
        table = "dead" if request.states == _DEAD else "ended" if request.states <= _ENDED else "record"
        clauses = [
            _in("queue", span.numbers),
            f"state <> '{QUARANTINED}'",
            f"{'ended_at' if request.table == 'dlq' else 'enqueued_at'} <= {bound}",
            *where(request.conditions, _literal),
        ]
        if span.first is not None:
            clauses.append(f"id >= {_literal(span.first)}")
        if span.end is not None:
            clauses.append(f"id < {_literal(span.end)}")
        columns = ", ".join(stored_columns(request))
        return f"SELECT {columns} FROM {self._schema}.{table} WHERE {' AND '.join(clauses)}"  # noqa: S608 (constants and literals)

    def _tables(self, request: ScanRequest) -> list[str]:
        if request.states == _DEAD:
            return [f"{self._schema}.dead"]
        ended = [f"{self._schema}.done", f"{self._schema}.dead"]
        return ended if request.states <= _ENDED else [f"{self._schema}.job", *ended]

    @contextmanager
    def _cursor(self) -> Iterator[Any]:
        """A transaction that only reads, in the role of the url; the driver's errors without secrets."""
        import adbc_driver_postgresql
        import adbc_driver_postgresql.dbapi

        address = self._address
        joint = "&" if "?" in address.conninfo else "?"
        timeout = max(1, round(address.pool.connect_timeout))
        options = urlencode({"connect_timeout": timeout, "fallback_application_name": "penstock-spark"})
        try:
            with (
                adbc_driver_postgresql.dbapi.connect(f"{address.conninfo}{joint}{options}") as connection,
                connection.cursor() as cursor,
            ):
                cursor.execute("SET TRANSACTION READ ONLY")
                if address.role is not None:
                    cursor.execute(f'SET LOCAL ROLE "{address.role}"')
                hint = adbc_driver_postgresql.StatementOptions.BATCH_SIZE_HINT_BYTES.value
                cursor.adbc_statement.set_options(**{hint: str(BATCH_BYTES)})
                yield cursor
        except adbc_driver_postgresql.dbapi.Error as error:
            text = " ".join(hide_secrets(str(error), self._url).split())
            kind = _kind(error.sqlstate or "", text)
            raise kind(f"the server at {address.shown}: {text}") from None


def _cuts(
    cursor: Any,
    tables: Sequence[str],
    sizes: Sequence[int],
    request: ScanRequest,
    numbers: Sequence[int],
    pieces: int,
    least: int,
) -> list[tuple[int, str]]:
    """Where to cut the jobs, in the order of queues and ids: each piece has about as many requested ones.

    `pieces` would be right if all jobs were request.
    """
    pages = max(sum(sizes) // _PAGE_BYTES, 1)
    percent = min(100.0, 100.0 * _SAMPLED_PAGES * max(pieces, least) / pages)
    ours = _in("queue", numbers)
    found = _sample(cursor, tables, request, f"TABLESAMPLE SYSTEM ({percent}) WHERE {ours}")
    if len(found) < max(pieces, least):
        # There are few among the jobs of other queues: the index finds them.
        found = _sample(cursor, tables, request, f"WHERE {ours} LIMIT {_SAMPLED_IDS}")
    ids = [(queue, job) for queue, job, is_requested in found if is_requested]
    if found:
        pieces = max(least, -(-pieces * len(ids) // len(found)))
    if len(ids) < pieces:
        ids = [(queue, job) for queue, job, _ in found]
    return [ids[at] for at in sorted({len(ids) * nth // pieces for nth in range(1, pieces)} - {0})]


def _sample(
    cursor: Any, tables: Sequence[str], request: ScanRequest, which: str
) -> list[tuple[int, str, bool | None]]:
    """Queue and id of some jobs in their order, and whether they are requested."""
    conditions = [each for each in request.conditions if each.column not in _OF_ENDED]
    fits = " AND ".join(where(conditions, _literal)) or "true"
    look = f"SELECT queue, id, {fits} AS fits FROM"
    samples = " UNION ALL ".join(f"({look} {table} {which})" for table in tables)
    return _rows(cursor, f"SELECT queue, id, fits FROM ({samples}) AS sample ORDER BY queue, id")  # noqa: S608 (constants)


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


def _kind(code: str, text: str) -> type[PenstockError]:
    if code.startswith(("28", "42501")) or "authentication failed" in text:
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
