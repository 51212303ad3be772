"""Joins calls that arrive while one is in flight into the next one: group commit without waiting."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")


class Coalescer(Generic[T, R]):
    """Turns a call for many into calls for one, on one event loop.

    The first call goes out at the end of the current turn of the loop; what arrives while it is under way
    goes out together as the next. An exception of the joint call reaches everyone in it.
    """

    def __init__(
        self,
        call: Callable[[Sequence[T]], Awaitable[Sequence[R]]],
        *,
        limit: int = 1_000,
        size: Callable[[T], int] | None = None,
        size_limit: int = 1 << 20,
    ) -> None:
        self._call = call
        self._limit = limit
        self._size = size
        self._size_limit = size_limit
        self._waiting: list[tuple[T, asyncio.Future[R]]] = []
        self._runner: asyncio.Task[None] | None = None

    async def do(self, item: T) -> R:
        """The answer for one item."""
        return await self.submit(item)

    def submit(self, item: T) -> "asyncio.Future[R]":
        """A future of the answer for one item."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[R] = loop.create_future()
        self._waiting.append((item, future))
        if self._runner is None:
            self._runner = loop.create_task(self._run())
        return future

    async def flush(self) -> None:
        """Wait until everything submitted so far was answered."""
        while self._runner is not None:
            await asyncio.wait([self._runner])

    async def _run(self) -> None:
        try:
            while self._waiting:
                batch = self._take()
                try:
                    answers = await self._call([item for item, _ in batch])
                except asyncio.CancelledError:
                    for _, future in batch:
                        future.cancel()
                    raise
                except Exception as error:  # noqa: BLE001 (handed on to the callers)
                    for _, future in batch:
                        if not future.done():
                            future.set_exception(error)
                else:
                    for (_, future), answer in zip(batch, answers, strict=True):
                        if not future.done():
                            future.set_result(answer)
        finally:
            self._runner = None

    def _take(self) -> list[tuple[T, "asyncio.Future[R]"]]:
        count = min(len(self._waiting), self._limit)
        if self._size is not None:
            total = 0
            for index in range(count):
                total += self._size(self._waiting[index][0])
                if total > self._size_limit and index:
                    count = index
                    break
        batch, self._waiting = self._waiting[:count], self._waiting[count:]
        return batch
