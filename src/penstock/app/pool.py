"""The workers of an app."""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager

from penstock.worker.pool import Runner, WorkerPool


class AppWorkers(WorkerPool):
    """Opens the app for as long as they run, so that their handlers can enqueue; does `first` before."""

    def __init__(
        self,
        app: AbstractAsyncContextManager[object],
        workers: Sequence[Runner],
        first: Callable[[], Awaitable[object]],
    ) -> None:
        super().__init__(workers)
        self._app = app
        self._first = first

    async def run(self, handle_signals: bool = False) -> None:
        """Work until stopped; as `WorkerPool.run`."""
        async with self._app:
            await self._first()
            await super().run(handle_signals)
