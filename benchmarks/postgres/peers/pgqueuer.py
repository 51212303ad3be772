"""PgQueuer: async, a pool of asyncpg connections and uvloop, as its guide to performance says."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgPoolDriver
from pgqueuer.queries import Queries

from benchmarks.beside.calls import AsyncCalls
from benchmarks.beside.handlers import URL, executed, waited


@asynccontextmanager
async def worker() -> AsyncIterator[PgQueuer]:
    """What its worker command runs."""
    async with asyncpg.create_pool(URL, min_size=5, max_size=20) as pool:
        manager = PgQueuer(AsyncpgPoolDriver(pool))

        @manager.entrypoint("noop")
        async def noop(job: Any) -> None:
            executed()

        @manager.entrypoint("stamped")
        async def stamped(job: Any) -> None:
            waited(int(job.payload))

        yield manager


@asynccontextmanager
async def calls() -> AsyncIterator[AsyncCalls]:
    """A pool of connections."""
    async with asyncpg.create_pool(URL, min_size=5, max_size=20) as pool:
        queries = Queries(AsyncpgPoolDriver(pool))

        async def many(numbers: Sequence[int]) -> None:
            count = len(numbers)
            payloads = [b"%d" % number for number in numbers]
            await queries.enqueue(["noop"] * count, payloads, [0] * count)

        yield AsyncCalls(
            lambda number: queries.enqueue("noop", b"%d" % number),
            many,
            lambda number: queries.enqueue("stamped", b"%d" % number),
        )
