"""Jobs in a store before it is read, put there as a client does."""

import asyncio
from typing import Final

from benchmarks.beside.roles import CHUNK
from benchmarks.spawn import Figures
from penstock import Penstock

QUEUE: Final = "rows"
LATER_S: Final = 3_600
SHARE: Final = 100
"""One of so many jobs is delayed: what a filter is to find."""


def fill(url: str, jobs: int) -> Figures:
    """So many jobs, and as many events; most of them pending."""

    async def whole() -> None:
        app = Penstock(url)

        @app.queue(QUEUE).task(name="noop")
        async def noop(n: int) -> None:
            raise NotImplementedError

        async with app:
            later = jobs // SHARE
            for first in range(later, jobs, CHUNK):
                await noop.enqueue_many([(number,) for number in range(first, min(jobs, first + CHUNK))])
            for first in range(0, later, CHUNK):
                numbers = [(number,) for number in range(first, min(later, first + CHUNK))]
                await noop.options(delay=LATER_S).enqueue_many(numbers)

    asyncio.run(whole())
    return {}
