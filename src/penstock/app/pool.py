"""The workers of an app."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager

from penstock.app.restoring import Restorer
from penstock.worker.executors.process.host import Host
from penstock.worker.pool import Runner, WorkerPool


class AppWorkers(WorkerPool):
    """Opens the app for as long as they run, so that their handlers can enqueue; does `first` before.

    If the store loses what was declared while they run, `restorer` declares it again.
    """

    def __init__(
        self,
        app: AbstractAsyncContextManager[object],
        workers: Sequence[Runner],
        first: Callable[[], Awaitable[object]],
        restorer: Restorer,
        host: Host | None = None,
    ) -> None:
        super().__init__(workers, host)
        self._app = app
        self._first = first
        self._restorer = restorer

    async def run(self, handle_signals: bool = False) -> None:
        """Work until stopped; as `WorkerPool.run`."""
        async with self._app:
            await self._first()
            restoring = asyncio.create_task(self._restorer.run())
            try:
                await super().run(handle_signals)
            finally:
                restoring.cancel()
                await asyncio.wait([restoring])
