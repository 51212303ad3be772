"""BullMQ for Python: async, scripts, `addBulk`; its worker is a script of one's own."""

import asyncio
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from bullmq import Queue, Worker

from benchmarks.beside.calls import AsyncCalls
from benchmarks.beside.handlers import URL, executed, waited

QUEUE: Final = "bench"


async def process(job: Any, token: str) -> None:
    """Every job of the queue comes here."""
    if job.name == "noop":
        executed()
    else:
        waited(job.data["n"])


async def main() -> None:
    """Work until told to stop."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    worker = Worker(QUEUE, process, {"connection": URL, "concurrency": 100})
    await stop.wait()
    await worker.close()


@asynccontextmanager
async def calls() -> AsyncIterator[AsyncCalls]:
    """The queue."""
    queue = Queue(QUEUE, {"connection": URL})

    async def many(numbers: Sequence[int]) -> None:
        await queue.addBulk([{"name": "noop", "data": {"n": number}} for number in numbers])

    yield AsyncCalls(
        lambda number: queue.add("noop", {"n": number}),
        many,
        lambda number: queue.add("stamped", {"n": number}),
    )
    await queue.close()


if __name__ == "__main__":
    asyncio.run(main())
