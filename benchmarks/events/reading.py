"""Events of a store into batches of Arrow, as the source for Spark reads them, in one process."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import msgspec

from benchmarks.postgres import server as postgres
from benchmarks.redis import server as redis
from benchmarks.spawn import Figures, run
from penstock.core.job import NewJob, QueueRef
from penstock.core.moves import Complete
from penstock.spark.events.columns import batch_of
from penstock.spark.schemas import schema_of
from penstock.stores.open import open_store
from penstock.stores.protocol import Store

ALL: Final = "all columns"
RECORDS: Final = "records"
PAGE: Final = 10_000
_QUEUE: Final = QueueRef("default", "events")


def measured(folder: Path, *, store: str, jobs: int, size: int) -> Figures:
    """Events per second as columns, and as records; so many jobs stand in each call that wrote them."""
    with ExitStack() as stack:
        if store == "memory":
            url = "memory://"
        elif store == "sqlite":
            url = f"sqlite:///{folder}/jobs.db"
        elif store == "postgres":
            url = stack.enter_context(postgres.running()).url
        else:
            url = stack.enter_context(redis.running(store, folder)).url
        return run("benchmarks.events.reading", "read", url=url, jobs=jobs, size=size)


def read(url: str, jobs: int, size: int) -> Figures:
    """Fill the queue, then read its events twice."""
    return asyncio.run(_read(url, jobs, size))


async def _read(url: str, jobs: int, size: int) -> Figures:
    store = open_store(url)
    await store.open()
    try:
        await _fill(store, jobs, size)
        # The first array imports what later ones find there.
        batch_of(_QUEUE, await store.events.event_columns(_QUEUE, 0, "1", 1), schema_of("events"))
        return {ALL: await _rate(store, _columns), RECORDS: await _rate(store, _records)}
    finally:
        await store.close()


async def _fill(store: Store, jobs: int, size: int) -> None:
    """Jobs that are enqueued, claimed and completed, so many in a call."""
    await store.queues.open_queue(_QUEUE)
    plain = NewJob(id="", nonce="n", task="no_op", payload=b"{}")
    for first in range(0, jobs, size):
        fresh = [
            msgspec.structs.replace(plain, id=f"01KDYX4QJ20001A7K3{first + at:08d}") for at in range(size)
        ]
        await store.moves.enqueue(_QUEUE, fresh)
        held = await store.moves.claim(_QUEUE, worker="web-1-4711-9f3c", limit=size, lease_ms=60_000)
        await store.moves.settle(_QUEUE, [Complete(job.id, job.token) for job in held.jobs])


async def _rate(store: Store, read_all: Callable[[Store], Awaitable[int]]) -> float:
    await store.events.event_range(_QUEUE)
    began = time.perf_counter()
    count = await read_all(store)
    return count / (time.perf_counter() - began)


async def _columns(store: Store) -> int:
    schema, here, count = schema_of("events"), "0", 0
    end = await store.events.cursor_after(_QUEUE)
    while (found := await store.events.event_columns(_QUEUE, here, end, PAGE)).count:
        batch = batch_of(_QUEUE, found, schema)
        here = batch.column(schema.names.index("cursor"))[-1].as_py()
        count += batch.num_rows
    return count


async def _records(store: Store) -> int:
    here, count = "0", 0
    while page := await store.events.read_events(_QUEUE, here, 1_000):
        here = page[-1].cursor
        count += len(page)
    return count
