"""The workers of an app."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Final

from penstock.app.preparing import UNUSABLE, Prepared
from penstock.app.restoring import Restorer
from penstock.core.errors import DamagedQueueError
from penstock.worker.executors.process.host import Host
from penstock.worker.health import WorkerHealth
from penstock.worker.pool import Runner, WorkerPool
from penstock.worker.recycling import Recycling
from penstock.worker.worker import Worker

if TYPE_CHECKING:
    from penstock.metrics.exposition import Exposition

STOP_CHECK: Final = 0.2
"""Seconds between two looks whether a worker that waits for its queue is stopped."""
PAUSE: Final = 1.0
"""Seconds before a declaration is attempted again."""


class AppWorkers(WorkerPool):
    """Opens the app for as long as they run, so that their handlers can enqueue; does `first` before.

    If the store loses what was declared while they run, `restorer` declares it again. The worker of a queue
    that cannot be reached starts when `declare` has compared what is stored of it. `recycling` stops them
    when the process has done its share. `exposition` is what a scrape of this process gets,
    where the app is instrumented.
    """

    def __init__(
        self,
        app: AbstractAsyncContextManager[object],
        workers: Sequence[Runner],
        first: Callable[[], Awaitable[Prepared]],
        restorer: Restorer,
        host: Host | None = None,
        *,
        declare: Callable[[str], Awaitable[object]] | None = None,
        recycling: Recycling | None = None,
        exposition: "Exposition | None" = None,
        health: WorkerHealth | None = None,
    ) -> None:
        super().__init__(workers, host)
        self.health = health
        """What probes are told of the workers; None where no job is executed."""
        self._app = app
        self._first = first
        self._restorer = restorer
        self._declare = declare
        self._recycling = recycling
        self.exposition = exposition
        self._waiting: dict[str, asyncio.Task[Any]] = {}
        self._is_stopped = False

    def stop(self, now: bool = False) -> None:
        """Ask all of them to return; from any thread."""
        self._is_stopped = True
        super().stop(now)

    async def run(self, handle_signals: bool = False) -> None:
        """Work until stopped; as `WorkerPool.run`."""
        async with self._app:
            ready = await self._first()
            self._waiting = dict(ready.waiting)
            self._restorer.is_behind = not ready.has_schedules
            beside = [asyncio.create_task(self._restorer.run())]
            if self._recycling is not None:
                beside.append(asyncio.create_task(self._recycling.run(self.stop)))
            if self.exposition is not None:
                beside.append(asyncio.create_task(self.exposition.run()))
            try:
                await super().run(handle_signals)
            finally:
                left = [*beside, *self._waiting.values()]
                for task in left:
                    task.cancel()
                await asyncio.gather(*left, return_exceptions=True)

    async def run_one(self, worker: Runner) -> None:
        """Run one worker, once its queue is declared."""
        name = worker.queue.name if isinstance(worker, Worker) else None
        while name in self._waiting and not self._is_stopped:
            # Stopping can come from any thread.
            await asyncio.wait([self._waiting[name]], timeout=STOP_CHECK)
            if not self._waiting[name].done():
                continue
            try:
                self._waiting.pop(name).result()
            except UNUSABLE as error:
                if isinstance(worker, Worker) and worker.is_burst and isinstance(error, DamagedQueueError):
                    raise
                self._waiting[name] = asyncio.create_task(self._again(name))
        await worker.run()

    async def _again(self, name: str) -> None:
        await asyncio.sleep(PAUSE)
        if self._declare is not None:
            await self._declare(name)
