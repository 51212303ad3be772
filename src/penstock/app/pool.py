"""The workers of an app."""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager

from penstock.worker.pool import WorkerPool
from penstock.worker.worker import Worker


class AppWorkers(WorkerPool):
    """Opens the app for as long as they run, so that their handlers can enqueue."""

    def __init__(self, app: AbstractAsyncContextManager[object], workers: Sequence[Worker]) -> None:
        super().__init__(workers)
        self._app = app

    async def run(self, handle_signals: bool = False) -> None:
        """Work until stopped; as `WorkerPool.run`."""
        async with self._app:
            await super().run(handle_signals)
