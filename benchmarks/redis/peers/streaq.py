"""streaQ: async, a stream, scripts, `enqueue_many`."""

import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from streaq import Worker

from benchmarks.beside.calls import AsyncCalls
from benchmarks.beside.handlers import URL, executed, waited

# Its worker writes lines for every job, and has no option against that.
logging.disable(logging.INFO)

worker = Worker(redis_url=URL, concurrency=100)


@worker.task
async def noop(n: int) -> None:
    executed()


@worker.task
async def stamped(n: int) -> None:
    waited(n)


@asynccontextmanager
async def calls() -> AsyncIterator[AsyncCalls]:
    """The worker object is its client too."""

    async def many(numbers: Sequence[int]) -> None:
        await worker.enqueue_many([noop.enqueue(number) for number in numbers])

    async def one(number: int) -> None:
        await noop.enqueue(number)

    async def one_stamped(number: int) -> None:
        await stamped.enqueue(number)

    async with worker:
        yield AsyncCalls(one, many, one_stamped)
