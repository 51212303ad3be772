"""Taskiq with the stream broker: async, acknowledged messages, no call that enqueues many."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

from taskiq_redis import RedisStreamBroker

from benchmarks.beside.calls import AsyncCalls
from benchmarks.beside.handlers import URL, executed, waited

AT_ONCE: Final = 100

broker = RedisStreamBroker(url=URL)


@broker.task
async def noop(n: int) -> None:
    executed()


@broker.task
async def stamped(n: int) -> None:
    waited(n)


@asynccontextmanager
async def calls() -> AsyncIterator[AsyncCalls]:
    """The broker, started; that makes the group of consumers too."""

    async def many(numbers: Sequence[int]) -> None:
        for first in range(0, len(numbers), AT_ONCE):
            await asyncio.gather(*(noop.kiq(number) for number in numbers[first : first + AT_ONCE]))

    await broker.startup()
    yield AsyncCalls(noop.kiq, many, stamped.kiq)
    await broker.shutdown()
