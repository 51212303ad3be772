"""Several workers in one process that start and stop together."""

import asyncio
import faulthandler
import logging
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final, Protocol

from penstock.core.errors import StuckHandlerError
from penstock.worker.blocked_loop import Watch
from penstock.worker.executors.process.host import Host

if TYPE_CHECKING:
    from penstock.metrics.exposition import Exposition

_LOGGER: Final = logging.getLogger("penstock.worker")
ECHO: Final = 0.5
"""Seconds in which a signal again is the same one: the terminal's, passed on by a wrapper as well."""


class Runner(Protocol):
    """A worker, or something else that runs until it is stopped."""

    def stop(self, now: bool = False) -> None:
        """Ask `run` to return; from any thread."""
        ...

    async def run(self) -> None:
        """Work until stopped."""
        ...


class WorkerPool:
    """Workers of several queues, or several of one."""

    exposition: "Exposition | None" = None
    """What a scrape of this process gets, where the app is instrumented."""

    def __init__(self, workers: Sequence[Runner], host: Host | None = None) -> None:
        self._workers = tuple(workers)
        self._host = host
        self._signals = 0
        self._received: dict[str, float] = {}
        self._watch = Watch(self._workers)

    def stop(self, now: bool = False) -> None:
        """Ask all of them to return; from any thread."""
        for worker in self._workers:
            worker.stop(now)

    async def run(self, handle_signals: bool = False) -> None:
        """Work until every worker has returned. When one fails, all are stopped and its error is raised.

        With `handle_signals`, SIGTERM, SIGINT and SIGHUP (unless it is ignored) stop after running jobs have
        ended, a second one at once, and SIGQUIT writes the stacks of all threads to standard error, and those
        of handlers in processes.
        For the main thread only. The same signal again within half a second is not a second one.
        """
        with self._handling() if handle_signals else _nothing():
            runs = [asyncio.create_task(self.run_one(worker)) for worker in self._workers]
            if not runs:
                return
            try:
                await asyncio.wait(runs, return_when=asyncio.FIRST_EXCEPTION)
                failures = [error for run in runs if (error := _error(run))]
                if failures:
                    # What other workers of the process run is finished where only a thread is stuck.
                    self.stop(now=not all(isinstance(each, StuckHandlerError) for each in failures))
                await asyncio.wait(runs)
            except asyncio.CancelledError:
                for run in runs:
                    run.cancel()
                await asyncio.wait(runs)
                for run in runs:
                    _error(run)
                raise
            # Every exception is retrieved here: one of several is raised.
            for error in [error for run in runs if (error := _error(run))]:
                raise error

    async def run_one(self, worker: Runner) -> None:
        """Run one worker until it returns."""
        await worker.run()

    def _signalled(self, loop: asyncio.AbstractEventLoop, number: int) -> None:
        """In the main thread, between two steps of whatever it does: also of a handler that blocks it."""
        name, now = signal.Signals(number).name, time.monotonic()
        if now - self._received.get(name, -ECHO) < ECHO:
            return
        self._received[name] = now
        self._signals += 1
        self._watch.begin(self._signals > 1)
        # A closed loop has nothing left to stop.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(self._obey, name, self._signals > 1)

    def _obey(self, name: str, is_again: bool) -> None:
        self._watch.end()
        if is_again:
            _LOGGER.warning("%s again: stopping at once", name)
        else:
            _LOGGER.info("%s: finishing what runs; once more to stop at once", name)
        self.stop(now=is_again)

    def _quit(self) -> None:
        if self._host is not None:
            self._host.dump_stacks()

    @contextmanager
    def _handling(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        handled = [signal.SIGTERM, signal.SIGINT]
        # Ignored by nohup and the like, which is what someone wanted.
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            handled.append(signal.SIGHUP)
        before = {each: signal.getsignal(each) for each in handled}
        for each in handled:
            signal.signal(each, lambda number, _: self._signalled(loop, number))
        loop.add_signal_handler(signal.SIGQUIT, self._quit)
        # In C, so that the stacks come also when a handler holds the event loop; then as set above.
        faulthandler.register(signal.SIGQUIT, file=sys.__stderr__ or sys.stderr, all_threads=True, chain=True)
        try:
            yield
        finally:
            faulthandler.unregister(signal.SIGQUIT)
            loop.remove_signal_handler(signal.SIGQUIT)
            for each in handled:
                signal.signal(each, before[each])
            self._watch.end()


def _error(run: asyncio.Task[None]) -> BaseException | None:
    return run.exception() if run.done() and not run.cancelled() else None


@contextmanager
def _nothing() -> Iterator[None]:
    yield
