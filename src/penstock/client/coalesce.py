"""Joins calls that arrive while one is in flight into the next one: group commit without waiting."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")
CROWD: Final = 32
"""So many are worth two calls."""


class Coalescer(Generic[T, R]):
    """Turns a call for many into calls for one, on one event loop.

    The first call goes out at the end of the current turn of the loop; what arrives while it is under way
    goes out together as the next. With `ahead`, so many may be under way at once, and a crowd that finds none
    is split: the server works on one part while this process deals with the answers of another. An exception
    of the joint call reaches everyone in it.
    """

    def __init__(
        self,
        call: Callable[[Sequence[T]], Awaitable[Sequence[R]]],
        *,
        limit: int = 1_000,
        size: Callable[[T], int] | None = None,
        size_limit: int = 1 << 20,
        ahead: int = 1,
    ) -> None:
        self._call = call
        self._limit = limit
        self._size = size
        self._size_limit = size_limit
        self._ahead = ahead
        self._waiting: list[tuple[T, asyncio.Future[R]]] = []
        self._runners: set[asyncio.Task[None] | None] = set()
        self._is_starting = False

    async def do(self, item: T) -> R:
        """The answer for one item."""
        return await self.submit(item)

    def submit(self, item: T) -> "asyncio.Future[R]":
        """A future of the answer for one item."""
        future: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, future))
        if not self._is_starting and len(self._runners) < self._ahead:
            self._start()
        return future

    async def flush(self) -> None:
        """Wait until everything submitted so far was answered."""
        while runners := [runner for runner in self._runners if runner is not None]:
            await asyncio.wait(runners)

    def _start(self) -> None:
        self._is_starting = True
        self._runners.add(asyncio.get_running_loop().create_task(self._run()))

    async def _run(self) -> None:
        self._is_starting = False
        try:
            while self._waiting:
                batch = self._take()
                if self._waiting and len(self._runners) < self._ahead:
                    self._start()
                await self._ask(batch)
        finally:
            # Before anybody else runs: what is submitted from now on needs another runner.
            self._runners.discard(asyncio.current_task())

    async def _ask(self, batch: list[tuple[T, "asyncio.Future[R]"]]) -> None:
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

    def _take(self) -> list[tuple[T, "asyncio.Future[R]"]]:
        count = min(len(self._waiting), self._limit)
        if len(self._runners) < self._ahead and count >= CROWD:
            count = -(-count // self._ahead)
        if self._size is not None:
            total = 0
            for index in range(count):
                total += self._size(self._waiting[index][0])
                if total > self._size_limit and index:
                    count = index
                    break
        batch, self._waiting = self._waiting[:count], self._waiting[count:]
        return batch
