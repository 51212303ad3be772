"""Jobs of a Redis store: spans of time of its indexes, in pages."""

import asyncio
from collections.abc import AsyncGenerator, Iterator, Sequence
from functools import lru_cache, partial
from typing import Any, Final

import msgspec
import pyarrow as pa

from penstock.core.errors import StoreFormatError
from penstock.core.job import Options, QueueRef
from penstock.core.states import State
from penstock.spark.jobs.pieces import RedisPiece, evenly, pieces_for
from penstock.spark.jobs.sql import LARGE, moments
from penstock.spark.jobs.wanted import COLUMNS_IN_MORE, COLUMNS_OF_QUEUES, Condition, Wanted
from penstock.spark.options import SourceOptions
from penstock.spark.schemas import JOBS
from penstock.spark.stores import opened, queues_of, run
from penstock.stores.damaged import DAMAGED
from penstock.stores.protocol import Store
from penstock.stores.redis.scans import ScannedPage, Scanner
from penstock.stores.redis.store import RedisStore

PIECE_JOBS: Final = 100_000
PAGE_JOBS: Final = 2_000
LARGE_PAGE_JOBS: Final = 500
_APART: Final = {"payload": "payloads", "result": "results", "error": "errors", "progress": "progress"}
_SOMETIMES: Final = frozenset(
    {"key", "idempotency_key", "visible_at", "deadline", "ended_at", "worker", "reason", "fingerprint"}
)
"""Fields of records that have false for what is not there."""
_UNFIT: Final = (pa.ArrowException, OverflowError, *DAMAGED)


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
    times = await scanner.times(queue, ended, [*evenly(size, -(-size // each)), -1])
    if not times:
        return []
    *cuts, newest = times
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


async def _next(batches: AsyncGenerator[pa.RecordBatch]) -> pa.RecordBatch | None:
    return await anext(batches, None)


async def _batches(
    options: SourceOptions, wanted: Wanted, piece: RedisPiece
) -> AsyncGenerator[pa.RecordBatch]:
    apart = frozenset(_APART[name] for name in wanted.columns if name in _APART)
    conditions = [each for each in wanted.conditions if each.column not in COLUMNS_OF_QUEUES]
    sieve = partial(_kept, conditions=conditions)
    size = PAGE_JOBS if LARGE.isdisjoint(wanted.columns) else LARGE_PAGE_JOBS
    async with opened(options) as store:
        pages = _scanner(store).pages(
            piece.queue,
            piece.ended,
            piece.first,
            piece.last,
            apart=apart,
            sieve=sieve if conditions else None,
            size=size,
        )
        try:
            async for page in pages:
                if kept := sieve(page):
                    yield _batch(page, kept, wanted, piece.queue)
        except StoreFormatError as error:
            raise StoreFormatError(f"{(await store.info()).url}: {error}") from None


def _kept(page: ScannedPage, conditions: Sequence[Condition]) -> Sequence[int]:
    """The places of the rows for which every condition holds."""
    kept: Sequence[int] = range(len(page.ids))
    for each in conditions:
        values = _values(page, kept, each.column)
        kept = [at for at, value in zip(kept, values, strict=True) if each.holds(value)]
    return kept


def _batch(page: ScannedPage, kept: Sequence[int], wanted: Wanted, queue: QueueRef) -> pa.RecordBatch:
    arrays = []
    for name in wanted.columns:
        if name in COLUMNS_OF_QUEUES:
            arrays.append(pa.repeat(queue.tenant if name == "tenant" else queue.name, len(kept)))
            continue
        try:
            arrays.append(_array(page, kept, name))
        except _UNFIT as error:
            raise _damage(page, kept, name, queue) or error from None
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema([JOBS.field(name) for name in wanted.columns]))


def _array(page: ScannedPage, kept: Sequence[int], name: str) -> pa.Array:
    kind, values = JOBS.field(name).type, _values(page, kept, name)
    is_time = pa.types.is_timestamp(kind)
    return moments(pa.array(values, pa.int64())) if is_time else pa.array(values, kind)


def _damage(page: ScannedPage, kept: Sequence[int], name: str, queue: QueueRef) -> StoreFormatError | None:
    """What to raise for the first job whose value does not fit the column; None where each does."""
    for at in kept:
        alone = ScannedPage(
            [page.ids[at]],
            {field: [values[at]] for field, values in page.fields.items()},
            {field: [values[at]] for field, values in page.apart.items()},
        )
        try:
            _array(alone, [0], name)
        except _UNFIT as error:
            return StoreFormatError(f"job {page.ids[at]} of queue {queue}: column {name}: {error}")
    return None


def _values(page: ScannedPage, kept: Sequence[int], name: str) -> Sequence[Any]:
    """The values of a column in these places; times as milliseconds."""
    if name == "id":
        found: Sequence[Any] = page.ids
    elif name in ("payload", "result", "progress"):
        found = [None if each is None else each.decode() for each in page.apart[_APART[name]]]
    elif name == "max_attempts":
        found = [_max_attempts(each) for each in page.fields["options"]]
    elif name == "error":
        found = [
            None if first is False else first if rest is None else first + rest.decode()
            for first, rest in zip(page.fields["error"], page.apart["errors"], strict=True)
        ]
    elif name in COLUMNS_IN_MORE:
        found = [_extra(each, name) for each in page.fields["extra"]]
    elif name in _SOMETIMES:
        found = [None if each is False else each for each in page.fields[name]]
    else:
        found = page.fields[name]
    return found if len(kept) == len(found) else [found[at] for at in kept]


def _extra(extra: Any, name: str) -> Any:
    value = extra.get(name) if extra else None
    return [f"{queue}/{job}" for queue, job in value] if name == "parents" and value else value or None


def _scanner(store: Store) -> Scanner:
    if not isinstance(store, RedisStore):
        raise TypeError(f"a Redis store was wanted, found {type(store).__name__}")
    return store.scanner


@lru_cache(maxsize=1024)
def _max_attempts(options: str) -> int:
    return msgspec.json.decode(options, type=Options).max_attempts
