"""A store that planning talks to: open in an event loop of its own, between the calls of Spark."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future, wait
from contextlib import AsyncExitStack
from typing import Any, TypeVar

from penstock.spark.options import SourceOptions
from penstock.spark.stores import opened
from penstock.stores.protocol import Store

T = TypeVar("T")


class Link:
    """Opens the store with the first call and keeps it open. Pickled, it is closed on the other side."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._store: Store | None = None
        self._stack: AsyncExitStack
        self._opening: asyncio.Lock
        self._sent: set[Future[Any]] = set()

    def __reduce__(self) -> tuple[type["Link"], tuple[SourceOptions]]:
        return Link, (self._options,)

    def call(self, work: Callable[[Store], Awaitable[T]]) -> T:
        """What `work` makes of the store."""
        return self.send(work).result()

    def send(self, work: Callable[[Store], Awaitable[T]]) -> "Future[T]":
        """The same without waiting for it."""

        async def whole() -> T:
            return await work(await self._opened())

        sent = self._submit(whole())
        self._sent.add(sent)
        sent.add_done_callback(self._sent.discard)
        return sent

    def close(self) -> None:
        """Close the store and end the thread. Harmless when there is none."""
        if self._loop is None or self._thread is None:
            return
        wait(tuple(self._sent))
        self._submit(self._closed()).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._loop = self._thread = None

    async def _opened(self) -> Store:
        async with self._opening:
            if self._store is None:
                self._store = await self._stack.enter_async_context(opened(self._options))
            return self._store

    async def _closed(self) -> None:
        await self._stack.aclose()
        self._store = None

    def _submit(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._stack, self._opening = AsyncExitStack(), asyncio.Lock()
            self._thread = threading.Thread(target=self._loop.run_forever, name="penstock-spark", daemon=True)
            self._thread.start()
        return asyncio.run_coroutine_threadsafe(work, self._loop)
