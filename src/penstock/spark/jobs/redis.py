"""Jobs of a Redis store: spans of time of its indexes, in pages."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from functools import lru_cache
from typing import Any, Final

import msgspec
import pyarrow as pa

from penstock.core.job import Options, QueueRef
from penstock.core.states import State
from penstock.spark.jobs.pieces import RedisPiece, evenly, pieces_for
from penstock.spark.jobs.sql import LARGE, moments, parents_array
from penstock.spark.jobs.wanted import COLUMNS_OF_QUEUES, Wanted
from penstock.spark.options import SourceOptions
from penstock.spark.schemas import JOBS
from penstock.spark.stores import opened, queues_of, run
from penstock.stores.protocol import Store
from penstock.stores.redis.records import Extra
from penstock.stores.redis.scans import Scanned, Scanner
from penstock.stores.redis.store import RedisStore

PIECE_JOBS: Final = 100_000
PAGE_JOBS: Final = 2_000
LARGE_PAGE_JOBS: Final = 500
_APART: Final = {"payload": "payloads", "result": "results", "error": "errors", "progress": "progress"}
_NO_EXTRA: Final = Extra()

_Get = Callable[[Scanned], Any]


def plan(options: SourceOptions, wanted: Wanted) -> list[RedisPiece]:
    """Spans of time with about as many jobs each, up to the newest of each queue."""
    return run(_pieces(options, wanted))


async def _pieces(options: SourceOptions, wanted: Wanted) -> list[RedisPiece]:
    # Jobs of ended states stand in indexes of their own.
    states = wanted.states
    indexes = sorted(states) if all(state.is_ended for state in states) else [None]
    pieces: list[RedisPiece] = []
    async with opened(options) as store:
        scanner = _scanner(store)
        walks = [
            (info.queue, ended, await scanner.size(info.queue, ended))
            for info in await queues_of(store, options)
            if wanted.has(info.queue)
            for ended in indexes
        ]
        total = sum(size for *_, size in walks)
        each = max(1, -(-total // pieces_for(total, PIECE_JOBS, options.min_partitions)))
        for queue, ended, size in walks:
            pieces += await _cut(scanner, queue, ended, size, each)
        # No job that comes from now on has this time any more. A clock that was set back is not waited for.
        ahead = max((piece.last for piece in pieces), default=0) - await store.now()
        if 0 <= ahead < 1_000:
            await asyncio.sleep((ahead + 1) / 1000)
    return pieces


async def _cut(
    scanner: Scanner, queue: QueueRef, ended: State | None, size: int, each: int
) -> list[RedisPiece]:
    if not size:
        return []
    *cuts, newest = await scanner.cuts(queue, ended, [*evenly(size, -(-size // each)), -1])
    starts = sorted({0, *cuts})
    ends = [*(start - 1 for start in starts[1:]), newest]
    return [RedisPiece(queue, ended, *span) for span in zip(starts, ends, strict=True)]


def read(options: SourceOptions, wanted: Wanted, piece: RedisPiece) -> Iterator[pa.RecordBatch]:
    """The rows of a piece."""
    batches = _batches(options, wanted, piece)
    with asyncio.Runner() as runner:
        try:
            while (batch := runner.run(_next(batches))) is not None:
                yield batch
        finally:
            runner.run(batches.aclose())


async def _next(batches: AsyncIterator[pa.RecordBatch]) -> pa.RecordBatch | None:
    return await anext(batches, None)


async def _batches(options: SourceOptions, wanted: Wanted, piece: RedisPiece) -> Any:
    conditions = [(each, _GETS[each.column]) for each in wanted.conditions if each.column in _GETS]
    apart = frozenset(_APART[name] for name in wanted.columns if name in _APART)
    size = PAGE_JOBS if LARGE.isdisjoint(wanted.columns) else LARGE_PAGE_JOBS
    async with opened(options) as store:
        pages = _scanner(store).pages(
            piece.queue, piece.ended, piece.first, piece.last, apart=apart, size=size
        )
        async for page in pages:
            rows = [row for row in page if all(each.holds(get(row)) for each, get in conditions)]
            if rows:
                yield _batch(rows, wanted, piece.queue)


def _batch(rows: list[Scanned], wanted: Wanted, queue: QueueRef) -> pa.RecordBatch:
    arrays = [_array(rows, name, queue) for name in wanted.columns]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema([JOBS.field(name) for name in wanted.columns]))


def _array(rows: list[Scanned], name: str, queue: QueueRef) -> pa.Array:
    if name in COLUMNS_OF_QUEUES:
        return pa.repeat(queue.tenant if name == "tenant" else queue.name, len(rows))
    if name == "parents":
        return parents_array([_extra(row).parents for row in rows])
    get, kind = _GETS[name], JOBS.field(name).type
    values = [get(row) for row in rows]
    return moments(pa.array(values, pa.int64())) if pa.types.is_timestamp(kind) else pa.array(values, kind)


def _scanner(store: Store) -> Scanner:
    if not isinstance(store, RedisStore):
        raise TypeError(f"a Redis store was wanted, found {type(store).__name__}")
    return store.scanner


def _extra(row: Scanned) -> Extra:
    return row.record.extra if isinstance(row.record.extra, Extra) else _NO_EXTRA


@lru_cache(maxsize=1024)
def _max_attempts(options: str) -> int:
    return msgspec.json.decode(options, type=Options).max_attempts


def _error(row: Scanned) -> str | None:
    first = row.record.error
    if first is False or first is True:
        return None
    return first if row.error_rest is None else first + row.error_rest.decode()


def _of(name: str) -> _Get:
    # Scripts write false for what is not there.
    return lambda row: None if (value := getattr(row.record, name)) is False else value


def _exactly(name: str) -> _Get:
    return lambda row: getattr(row.record, name)


def _text(name: str) -> _Get:
    return lambda row: None if (value := getattr(row, name)) is None else value.decode()


_GETS: Final[dict[str, _Get]] = {
    "id": lambda row: row.id,
    "state": lambda row: str(row.record.state),
    "cancel_requested": _exactly("cancel_requested"),
    "max_attempts": lambda row: _max_attempts(row.record.options),
    "error": _error,
    "schedule": lambda row: _extra(row).schedule,
    "instant": lambda row: _extra(row).instant,
    "payload": _text("payload"),
    "result": _text("result"),
    "progress": _text("progress"),
    **{
        name: _exactly(name)
        for name in ("task", "priority", "version", "drive", "delivery", "attempts", "fence")
    },
    **{name: _exactly(name) for name in ("enqueued_at", "options")},
    **{
        name: _of(name) for name in ("key", "idempotency_key", "visible_at", "deadline", "ended_at", "worker")
    },
    **{name: _of(name) for name in ("reason", "fingerprint")},
}
"""How a column is got from a record; times as milliseconds."""
