"""Penstock's tasks for each tier, each tier with a queue of its name."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from benchmarks.beside.calls import AsyncCalls
from benchmarks.beside.handlers import MARKS_VARIABLE, URL, executed, waited
from penstock import Penstock

app = Penstock(URL)
app.queue("inline")
app.queue("kept", executor="process")
app.queue("forked", executor="process", recycle_jobs=1)
app.queue("program", program=["sh", "-c", f'printf . >> "${MARKS_VARIABLE}"'])


def noop(n: int) -> None:
    """A job."""
    executed()


def stamped(n: int) -> None:
    """A job that says how long it waited."""
    waited(n)


for name in app.queues:
    app.queue(name).task(name=f"{name}.noop")(noop)
    app.queue(name).task(name=f"{name}.stamped")(stamped)


@asynccontextmanager
async def calls(tier: str) -> AsyncIterator[AsyncCalls]:
    """The app, open, with the tasks of a tier."""
    task, stamp = app.task_named(f"{tier}.noop"), app.task_named(f"{tier}.stamped")

    async def many(numbers: Sequence[int]) -> None:
        await task.enqueue_many([(number,) for number in numbers])

    async with app:
        yield AsyncCalls(task.enqueue, many, stamp.enqueue)
