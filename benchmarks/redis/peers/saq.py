"""SAQ: async, a list of jobs, no call that enqueues many."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from saq import Queue

from benchmarks.beside.calls import AsyncCalls
from benchmarks.beside.handlers import URL, executed, waited

AT_ONCE: Final = 100


async def noop(ctx: Any, *, n: int) -> None:
    executed()


async def stamped(ctx: Any, *, n: int) -> None:
    waited(n)


queue = Queue.from_url(URL)
settings = {"queue": queue, "functions": [noop, stamped], "concurrency": 100}


@asynccontextmanager
async def calls() -> AsyncIterator[AsyncCalls]:
    """The queue, connected."""

    async def many(numbers: Sequence[int]) -> None:
        for first in range(0, len(numbers), AT_ONCE):
            await asyncio.gather(
                *(queue.enqueue("noop", n=number) for number in numbers[first : first + AT_ONCE])
            )

    await queue.connect()
    yield AsyncCalls(
        lambda number: queue.enqueue("noop", n=number),
        many,
        lambda number: queue.enqueue("stamped", n=number),
    )
    await queue.disconnect()
