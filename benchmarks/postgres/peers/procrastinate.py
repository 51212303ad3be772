"""Procrastinate: async on psycopg; one job per round trip, `batch_defer` for many."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from procrastinate import App, PsycopgConnector

from benchmarks.beside.calls import AsyncCalls
from benchmarks.beside.handlers import URL, executed, waited

app = App(connector=PsycopgConnector(conninfo=URL, max_size=10))


@app.task(name="noop")
async def noop(n: int) -> None:
    executed()


@app.task(name="stamped")
async def stamped(n: int) -> None:
    waited(n)


@asynccontextmanager
async def calls() -> AsyncIterator[AsyncCalls]:
    """The app, open."""

    async def many(numbers: Sequence[int]) -> None:
        await noop.batch_defer_async(*({"n": number} for number in numbers))

    async with app.open_async():
        yield AsyncCalls(
            lambda number: noop.defer_async(n=number), many, lambda number: stamped.defer_async(n=number)
        )
