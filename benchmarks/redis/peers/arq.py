"""ARQ: async, a sorted set that is polled, no call that enqueues many."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from arq import create_pool
from arq.connections import RedisSettings

from benchmarks.beside.calls import AsyncCalls
from benchmarks.beside.handlers import URL, executed, waited

AT_ONCE: Final = 100
QUIET: Final = {"version": 1, "disable_existing_loggers": False}
"""Its worker writes lines for every job unless it is given a logging of one's own."""


async def noop(ctx: Any, n: int) -> None:
    executed()


async def stamped(ctx: Any, n: int) -> None:
    waited(n)


class WorkerSettings:
    """As its worker command takes them."""

    functions: Final = [noop, stamped]
    redis_settings = RedisSettings.from_dsn(URL)
    max_jobs = 100


@asynccontextmanager
async def calls() -> AsyncIterator[AsyncCalls]:
    """A pool of connections."""
    pool = await create_pool(WorkerSettings.redis_settings)

    async def many(numbers: Sequence[int]) -> None:
        for first in range(0, len(numbers), AT_ONCE):
            await asyncio.gather(
                *(pool.enqueue_job("noop", number) for number in numbers[first : first + AT_ONCE])
            )

    yield AsyncCalls(
        lambda number: pool.enqueue_job("noop", number),
        many,
        lambda number: pool.enqueue_job("stamped", number),
    )
    await pool.aclose()
