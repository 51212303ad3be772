"""Penstock through its public face, as its worker imports it and as users enqueue."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from benchmarks.beside.calls import AsyncCalls
from benchmarks.beside.handlers import URL, executed, stopped, waited
from penstock import Penstock

app = Penstock(URL)


@app.task
async def noop(n: int) -> None:
    executed()


@app.task
async def stamped(n: int) -> None:
    waited(n)


@app.task
async def lasting() -> None:
    try:
        await asyncio.Event().wait()
    finally:
        stopped()


@asynccontextmanager
async def calls() -> AsyncIterator[AsyncCalls]:
    """The app, open."""

    async def many(numbers: Sequence[int]) -> None:
        await noop.enqueue_many([(number,) for number in numbers])

    async with app:
        yield AsyncCalls(noop.enqueue, many, stamped.enqueue)
