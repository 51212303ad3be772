"""Jobs of a Redis store: spans of time of its indexes, in pages."""

import asyncio
from collections.abc import AsyncGenerator, Iterator, Sequence
from functools import partial
from typing import Any, Final

import pyarrow as pa

from penstock.core.errors import StoreFormatError
from penstock.core.job import QueueRef
from penstock.spark.jobs.pieces import RedisPiece, pieces_for
from penstock.spark.jobs.sql import moments
from penstock.spark.options import SourceOptions
from penstock.spark.schemas import JOBS
from penstock.spark.stores import opened, queues_of, run
from penstock.stores.corruption import DECODE_ERRORS
from penstock.stores.protocol import Store
from penstock.stores.redis.scan import JobPage, RedisScan
from penstock.stores.redis.store import RedisStore
from penstock.stores.scan_request import COLUMNS_OF_QUEUES, Condition, ScanRequest
from penstock.stores.sql_scan import LARGE

PIECE_JOBS: Final = 100_000
PAGE_JOBS: Final = 2_000
LARGE_PAGE_JOBS: Final = 500
_UNFIT: Final = (pa.ArrowException, OverflowError, *DECODE_ERRORS)


def plan(options: SourceOptions, request: ScanRequest) -> list[RedisPiece]:
    """Spans of time with about as many jobs each, up to the newest of each queue."""
    return run(_pieces(options, request))


async def _pieces(options: SourceOptions, request: ScanRequest) -> list[RedisPiece]:
    # Jobs of ended states stand in indexes of their own.
    states = request.states
    indexes = sorted(states) if all(state.is_ended for state in states) else [None]
    async with opened(options) as store:
        scan = _scan(store)
        walks = [
            (info.queue, ended, await scan.size(info.queue, ended))
            for info in await queues_of(store, options)
            if request.has(info.queue)
            for ended in indexes
        ]
        total = sum(size for *_, size in walks)
        each = max(1, -(-total // pieces_for(total, PIECE_JOBS, options.min_partitions)))
        pieces = [
            RedisPiece(queue, ended, *span)
            for queue, ended, size in walks
            for span in await scan.spans(queue, ended, size, each)
        ]
        # No job that comes from now on has this time any more. A clock that was set back is not waited for.
        ahead = max((piece.last for piece in pieces), default=0) - await store.clock.now()
        if 0 <= ahead < 1_000:
            await asyncio.sleep((ahead + 1) / 1000)
    return pieces


def read(options: SourceOptions, request: ScanRequest, piece: RedisPiece) -> Iterator[pa.RecordBatch]:
    """The rows of a piece."""
    batches = _batches(options, request, piece)
    with asyncio.Runner() as runner:
        try:
            while (batch := runner.run(_next(batches))) is not None:
                yield batch
        finally:
            runner.run(batches.aclose())


async def _next(batches: AsyncGenerator[pa.RecordBatch]) -> pa.RecordBatch | None:
    return await anext(batches, None)


async def _batches(
    options: SourceOptions, request: ScanRequest, piece: RedisPiece
) -> AsyncGenerator[pa.RecordBatch]:
    conditions = [each for each in request.conditions if each.column not in COLUMNS_OF_QUEUES]
    sieve = partial(_fitting, conditions=conditions)
    async with opened(options) as store:
        pages = _scan(store).pages(
            piece.queue,
            piece.ended,
            piece.first,
            piece.last,
            columns=request.columns,
            sieve=sieve if conditions else None,
            size=PAGE_JOBS if LARGE.isdisjoint(request.columns) else LARGE_PAGE_JOBS,
        )
        try:
            async for page in pages:
                if rows := sieve(page):
                    yield _batch(page, rows, request, piece.queue)
        except StoreFormatError as error:
            raise StoreFormatError(f"{(await store.health.info()).url}: {error}") from None


def _fitting(page: JobPage, conditions: Sequence[Condition]) -> Sequence[int]:
    """The places of the rows for which every condition holds."""
    rows: Sequence[int] = range(len(page.ids))
    for each in conditions:
        values = _values(page, rows, each.column)
        rows = [at for at, value in zip(rows, values, strict=True) if each.holds(value)]
    return rows


def _values(page: JobPage, rows: Sequence[int], name: str) -> Sequence[Any]:
    values = page.column(name)
    return values if len(rows) == len(values) else [values[at] for at in rows]


def _batch(page: JobPage, rows: Sequence[int], request: ScanRequest, queue: QueueRef) -> pa.RecordBatch:
    arrays = []
    for name in request.columns:
        if name in COLUMNS_OF_QUEUES:
            arrays.append(pa.repeat(queue.tenant if name == "tenant" else queue.name, len(rows)))
            continue
        try:
            arrays.append(_array(page, rows, name))
        except _UNFIT as error:
            raise _damage(page, rows, name, queue) or error from None
    return pa.RecordBatch.from_arrays(
        arrays, schema=pa.schema([JOBS.field(name) for name in request.columns])
    )


def _array(page: JobPage, rows: Sequence[int], name: str) -> pa.Array:
    kind, values = JOBS.field(name).type, _values(page, rows, name)
    is_time = pa.types.is_timestamp(kind)
    return moments(pa.array(values, pa.int64())) if is_time else pa.array(values, kind)


def _damage(page: JobPage, rows: Sequence[int], name: str, queue: QueueRef) -> StoreFormatError | None:
    """What to raise for the first job whose value does not fit the column; None where each does."""
    for at in rows:
        try:
            _array(page.job(at), [0], name)
        except _UNFIT as error:
            return StoreFormatError(f"job {page.ids[at]} of queue {queue}: column {name}: {error}")
    return None


def _scan(store: Store) -> RedisScan:
    if not isinstance(store, RedisStore):
        raise TypeError(f"a Redis store was wanted, found {type(store).__name__}")
    return store.scan
