"""Long work on the event loop, in slices: no request keeps the others waiting."""

import asyncio
import time
from collections.abc import Generator
from typing import Final, TypeVar

T = TypeVar("T")
SLICE_SECONDS: Final = 0.01
"""How long a request works before other requests have their turn."""


class Yielder:
    """Gives the event loop back whenever a request has held it for a slice."""

    __slots__ = ("_began",)

    def __init__(self) -> None:
        self._began = time.perf_counter()

    async def checkpoint(self) -> None:
        """Let other tasks run, if the slice is over. Cheap enough to be called for each of many items."""
        if time.perf_counter() - self._began >= SLICE_SECONDS:
            await asyncio.sleep(0)
            self._began = time.perf_counter()

    async def run(self, steps: Generator[None, None, T]) -> T:
        """Run the steps with a checkpoint after each; returns their result."""
        while True:
            try:
                next(steps)
            except StopIteration as done:
                return done.value  # type: ignore[no-any-return]
            await self.checkpoint()
