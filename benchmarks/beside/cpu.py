"""Processor time per job of the workers and of the server, for one and for two workers."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.beside.depth import QUEUE
from benchmarks.beside.running import enqueue, worker
from benchmarks.beside.side import Plan, Server
from benchmarks.cases import OURS, Case
from benchmarks.machine import spent
from benchmarks.spawn import Failed, Figures
from penstock.stores.open import open_store
from penstock.stores.values import Pause

WORKERS: Final = (1, 2)
_UNITS: Final = {
    "client": "µs of the workers per job",
    "server": "µs of the server per job",
    "both": "µs of both per job",
    "rate": "jobs/s",
}
_TURNS: Final = 20
"""Parts of the jobs, by which one worker and two take turns: what disturbs the machine meets both."""
_START_SECONDS: Final = 20.0
_REST_SECONDS: Final = 0.5
_LOOK_SECONDS: Final = 0.05
_RING_SECONDS: Final = 0.01


def cpu(plan: Plan) -> Iterator[list[Case]]:
    """As many jobs by one worker as by two, on a server each."""
    units = {
        figure(what, count): f"{unit}, {count} worker{'s' * (count > 1)}"
        for count in WORKERS
        for what, unit in _UNITS.items()
    }
    yield [Case("cpu", "", OURS, "in turns", partial(_cost, plan), units)]


def figure(what: str, workers: int) -> str:
    """What is measured with so many workers."""
    return f"{what}_{workers}"


def _cost(plan: Plan, folder: Path) -> Figures:
    with ExitStack() as running:
        crews = [_Crew(plan, count, folder / str(count), running) for count in WORKERS]
        for crew in crews:
            # In the first turn every process still makes its scripts.
            crew.work_until(1 / (_TURNS + 1))
            crew.begin()
        for turn in range(_TURNS):
            # Each goes first as often as the other.
            for crew in crews if turn % 2 else reversed(crews):
                crew.work_until((turn + 2) / (_TURNS + 1))
        return {name: value for crew in crews for name, value in crew.figures().items()}


class _Crew:
    """Workers on a server of their own, whose queue is paused but for their turns."""

    def __init__(self, plan: Plan, count: int, folder: Path, running: ExitStack) -> None:
        side = plan.sides[0]
        self._count = count
        self._jobs = 2 * plan.processing(side)
        folder.mkdir()
        self._server = running.enter_context(plan.serve(folder))
        enqueue(side, self._server, "fill", jobs=self._jobs)
        self._runner = running.enter_context(asyncio.Runner())
        self._store = open_store(self._server.url)
        self._runner.run(self._store.open())
        running.callback(lambda: self._runner.run(self._store.close()))
        self._pause(Pause(at=0))
        self._workers = [
            running.enter_context(worker(side, self._server, folder, place)) for place in range(count)
        ]
        # What starting costs is not part of a job.
        _await_listeners(self._server, count)
        self.begin()

    def begin(self) -> None:
        """From now on it is measured."""
        self._before = self._workers[0].executed()
        self._client = self._served = self._seconds = 0.0

    def work_until(self, share: float) -> None:
        """Let them go on until this share of the jobs was executed; what they have claimed by then, too."""
        client, served = self._spent()
        start = time.perf_counter()
        self._pause(None)
        self._seconds += self._workers[0].wait_until(int(self._jobs * share)) - start
        self._pause(Pause(at=0))
        self._await_rest()
        after_client, after_served = self._spent()
        self._client += after_client - client
        self._served += after_served - served

    def figures(self) -> Figures:
        """When all jobs were executed."""
        jobs = self._jobs - self._before
        found = {
            "client": self._client / jobs * 1e6,
            "server": self._served / jobs * 1e6,
            "both": (self._client + self._served) / jobs * 1e6,
            "rate": jobs / self._seconds,
        }
        return {figure(what, self._count): value for what, value in found.items()}

    def _spent(self) -> tuple[float, float]:
        return spent([each.process.pid for each in self._workers]), self._server.spent()

    def _pause(self, pause: Pause | None) -> None:
        async def tell() -> None:
            await self._store.queues.pause_queue(QUEUE, pause)
            # A store may ring its bells a moment later, and without a running loop it would not.
            await asyncio.sleep(_RING_SECONDS)

        self._runner.run(tell())

    def _await_rest(self) -> None:
        # They share the file that says what was executed.
        before, seen = -1, 0
        while seen != before:
            time.sleep(_LOOK_SECONDS)
            before, seen = seen, self._workers[0].executed()


def _await_listeners(server: Server, count: int) -> None:
    """Wait until so many workers listen for wake-ups, and have come to rest after that."""
    end = time.monotonic() + _START_SECONDS
    while True:
        if server.listeners() >= count:
            break
        if time.monotonic() > end:
            raise Failed(f"{count} workers did not start in {_START_SECONDS:.0f} s")
        time.sleep(0.05)
    time.sleep(_REST_SECONDS)
