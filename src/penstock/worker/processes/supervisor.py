"""Starts worker processes, replaces those that end, changes their number and stops them."""

import asyncio
import logging
import random
import signal
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final

from penstock.core.retry_pause import RetryPause

_LOGGER: Final = logging.getLogger("penstock.worker")
SETTLED: Final = 10.0
"""Seconds that a process has to live before its failure counts as the first again."""
SHORTEST_LIFE: Final = 1.0
"""Seconds below which a process is replaced after a pause, however it ended: it may end each time."""
PAUSE: Final = RetryPause(0.5, 30.0)
"""How long the supervisor waits before it replaces a process that failed."""
KILL_MARGIN: Final = 30.0
"""Seconds beyond its own stop delays that a process has to end before it is killed."""
_FORWARDED: Final = ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT")


class _Child:
    def __init__(self, process: asyncio.subprocess.Process, generation: int) -> None:
        self.process = process
        self.generation = generation
        self.started_at = time.monotonic()
        self.is_retiring = False
        self.watch: asyncio.Task[None] | None = None

    def tell(self, what: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            self.process.send_signal(what)


class Supervisor:
    """Keeps `wanted` processes of a command running until it is stopped.

    A process that ends by itself is replaced: at once where it ended well, as after `--max-jobs`, and after a
    growing pause where it failed or lived for a moment only. If the very first processes fail, or one is
    used wrongly, all of them are stopped, because starting them again would not help. In a burst none is
    replaced.
    """

    def __init__(
        self,
        command: Sequence[str],
        wanted: int,
        *,
        stop_timeout: float,
        is_burst: bool = False,
    ) -> None:
        self._command = list(command)
        self._wanted = wanted
        self._stop_timeout = stop_timeout + KILL_MARGIN
        self._is_burst = is_burst
        self._children: dict[int, _Child] = {}
        self._generation = 0
        self._failures = 0
        self._not_before = 0.0
        self._has_settled = False
        self._is_stopping = False
        self._is_full = False
        self._kill_at: float | None = None
        self._changed = asyncio.Event()
        self._code = 0

    @property
    def wanted(self) -> int:
        """How many processes there should be."""
        return self._wanted

    @property
    def pids(self) -> list[int]:
        """The processes that work, without those that are about to end."""
        return [pid for pid, child in self._children.items() if not child.is_retiring]

    def resize(self, wanted: int, idle: Collection[int] = ()) -> None:
        """Have so many processes. Of too many, the idle ones are stopped first, then the youngest."""
        self._wanted = wanted
        surplus = len(self.pids) - wanted
        if surplus > 0:
            order = sorted(self.pids, key=lambda pid: (pid not in idle, -self._children[pid].started_at))
            for pid in order[:surplus]:
                self._retire(self._children[pid])
        self._changed.set()

    def replace_all(self) -> None:
        """Start every process anew; each old one drains once a new one has taken its place."""
        self._generation += 1
        self._failures, self._not_before = 0, 0.0
        self._changed.set()

    def stop(self, what: signal.Signals = signal.SIGTERM) -> None:
        """Pass a signal to all processes, and start no more."""
        if not self._is_stopping:
            self._is_stopping = True
            self._kill_at = time.monotonic() + self._stop_timeout
        for child in self._children.values():
            child.is_retiring = True
            child.tell(what)
        self._changed.set()

    async def run(self, *, handle_signals: bool = True) -> int:
        """Supervise until stopped; the exit code. Every process has ended when this returns."""
        with self._handling() if handle_signals else _nothing():
            try:
                while not self._is_over():
                    await self._fill()
                    await self._wait()
            finally:
                self.stop(signal.SIGKILL if self._children and not self._is_stopping else signal.SIGTERM)
                await self._reap_all()
        return self._code

    def _is_over(self) -> bool:
        return not self._children and (self._is_stopping or (self._is_burst and self._is_full))

    async def _fill(self) -> None:
        """Start what is missing, and retire processes of an older generation that have a successor."""
        while not self._is_stopping and not (self._is_burst and self._is_full):
            current = [each for each in self._working() if each.generation == self._generation]
            if len(current) >= self._wanted or time.monotonic() < self._not_before:
                break
            await self._start()
        self._is_full = self._is_full or len(self.pids) >= self._wanted
        old = [each for each in self._working() if each.generation < self._generation]
        surplus = len(self._working()) - self._wanted
        for child in old[: max(0, surplus)]:
            self._retire(child)

    def _working(self) -> list[_Child]:
        return [child for child in self._children.values() if not child.is_retiring]

    async def _start(self) -> None:
        process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=asyncio.subprocess.DEVNULL,
            # Signals of the terminal reach the supervisor alone, which passes them on.
            start_new_session=True,
        )
        child = self._children[process.pid] = _Child(process, self._generation)
        child.watch = asyncio.create_task(self._watch(child))
        if self._is_stopping:
            self._retire(child)
        _LOGGER.info("worker process %d started", process.pid)

    def _retire(self, child: _Child) -> None:
        child.is_retiring = True
        child.tell(signal.SIGTERM)

    async def _watch(self, child: _Child) -> None:
        code = await child.process.wait()
        self._children.pop(child.process.pid, None)
        self._ended(child, code)
        self._changed.set()

    def _ended(self, child: _Child, code: int) -> None:
        lived = time.monotonic() - child.started_at
        self._has_settled = self._has_settled or lived >= SETTLED or code == 0
        if child.is_retiring or self._is_stopping:
            _LOGGER.info("worker process %d ended", child.process.pid)
            return
        if code == 0 and (lived >= SHORTEST_LIFE or self._is_burst):
            self._failures = 0
            _LOGGER.info("worker process %d ended by itself", child.process.pid)
            return
        self._failures = 1 if lived >= SETTLED else self._failures + 1
        if code and (not self._has_settled or code == 2):
            _LOGGER.error("worker process %d ended with %s; stopping all", child.process.pid, _said(code))
            self._code = code if code > 0 else 1
            self.stop()
            return
        pause = PAUSE.after(self._failures - 1, random.uniform)
        self._not_before = time.monotonic() + pause
        _LOGGER.warning(
            "worker process %d ended with %s; another one starts in %.1f s",
            child.process.pid,
            _said(code),
            pause,
        )

    async def _wait(self) -> None:
        """Wait until a process ends, a number changes, or a pause is over."""
        now = time.monotonic()
        moments = [
            moment for moment in (self._kill_at, self._not_before) if moment is not None and moment > now
        ]
        with suppress(TimeoutError):
            async with asyncio.timeout(min(moments) - now if moments else None):
                await self._changed.wait()
        self._changed.clear()
        if self._kill_at is not None and time.monotonic() >= self._kill_at:
            for child in self._children.values():
                _LOGGER.warning("worker process %d does not end: it is killed", child.process.pid)
                child.tell(signal.SIGKILL)

    async def _reap_all(self) -> None:
        watches = [child.watch for child in self._children.values() if child.watch is not None]
        if watches:
            await asyncio.wait(watches)

    @contextmanager
    def _handling(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        handled = []
        for name in _FORWARDED:
            what = signal.Signals[name]
            if signal.getsignal(what) is signal.SIG_IGN and name == "SIGHUP":
                continue
            loop.add_signal_handler(what, self._forward(what))
            handled.append(what)
        try:
            yield
        finally:
            for what in handled:
                loop.remove_signal_handler(what)

    def _forward(self, what: signal.Signals) -> Callable[[], None]:
        def forward() -> None:
            if what is signal.SIGQUIT:
                for child in self._children.values():
                    child.tell(what)
            else:
                self.stop(signal.SIGTERM)

        return forward


def _said(code: int) -> str:
    if code >= 0:
        return f"status {code}"
    with suppress(ValueError):
        return signal.Signals(-code).name
    return f"signal {-code}"


@contextmanager
def _nothing() -> Iterator[None]:
    yield
