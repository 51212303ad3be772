"""Starts a side's worker and its enqueueing process, and watches from outside what is executed."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from benchmarks.beside.handlers import MARKS_VARIABLE, URL_VARIABLE
from benchmarks.beside.side import Server, Side
from benchmarks.spawn import ROOT, Failed, Figures, run, run_command

ROLES: Final = "benchmarks.beside.roles"
LONGEST: Final = 120.0
"""Seconds after which a worker that has not executed everything counts as stuck."""
_LOOK: Final = 0.002
_STOP_SECONDS: Final = 5.0


def set_up(side: Side, server: Server) -> None:
    """Give the side what it wants to find on a server."""
    if side.setup:
        command = [str(side.programs / side.setup[0]), *side.setup[1:]]
        done = subprocess.run(
            command, cwd=ROOT, env=_environment(side, server), capture_output=True, text=True, timeout=60
        )
        if done.returncode != 0:
            raise Failed(f"{' '.join(command)}: ended with {done.returncode}\n{done.stderr}")


def enqueue(side: Side, server: Server, role: str, **keywords: Any) -> Figures:
    """Run a role of the enqueueing process to its end."""
    if side.script is not None:
        command = [side.worker[0], str(side.script), role, json.dumps(keywords)]
        return run_command(command, folder=side.programs, environment={URL_VARIABLE: server.url})
    return run(
        ROLES,
        role,
        python=side.programs / "python",
        environment={URL_VARIABLE: server.url},
        side=side.module,
        **keywords,
    )


class Worker:
    """A side's worker in processes of its own."""

    def __init__(self, side: Side, server: Server, folder: Path, number: int = 0) -> None:
        self._side = side
        self._marks = folder / "marks"
        self._log = folder / f"worker-{number}.log"
        given = _environment(side, server) | {MARKS_VARIABLE: str(self._marks)}
        command = [str(side.programs / side.worker[0]), *side.worker[1:]]
        with self._log.open("wb") as log:
            # Its own group, so that the processes it starts can be stopped with it.
            self.process = subprocess.Popen(
                command,
                cwd=side.programs if side.script else ROOT,
                env=given,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def executed(self) -> int:
        """How many no-op jobs were."""
        return self._marks.stat().st_size if self._marks.exists() else 0

    def waits(self) -> list[float]:
        """How long each stamped job waited, in ms."""
        return [int(line) / 1e6 for line in self._marks.read_text().split()] if self._marks.exists() else []

    def wait_until(self, count: int) -> float:
        """Wait until so many no-op jobs were executed; the moment of that."""
        return self._wait(self.executed, count)

    def wait_for_waits(self, count: int) -> list[float]:
        """Wait until so many stamped jobs were executed; how long they waited."""
        self._wait(lambda: len(self.waits()), count)
        return self.waits()

    def _wait(self, seen: Callable[[], int], count: int) -> float:
        end = time.perf_counter() + LONGEST
        while seen() < count:
            if self.process.poll() is not None:
                raise self._failed(f"ended with {self.process.returncode}")
            if time.perf_counter() > end:
                raise self._failed(f"executed {seen()} of {count} jobs in {LONGEST:.0f} s")
            time.sleep(_LOOK)
        return time.perf_counter()

    def stop(self) -> None:
        """Tell it to stop, then make sure of it and of whatever it started."""
        self.process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(_STOP_SECONDS)
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(_STOP_SECONDS)

    def _failed(self, why: str) -> Failed:
        said = self._log.read_text(errors="replace")[-2_000:]
        return Failed(f"the worker of {self._side.name} {why}\n{said}")


@contextmanager
def worker(side: Side, server: Server, folder: Path, number: int = 0) -> Iterator[Worker]:
    """A worker that does not outlive the block."""
    started = Worker(side, server, folder, number)
    try:
        yield started
    finally:
        started.stop()


def _environment(side: Side, server: Server) -> dict[str, str]:
    """What the side's own commands need to find this package and the server."""
    found = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), str(ROOT)))),
        URL_VARIABLE: server.url,
    }
    return found | {side.url_variable: server.url} if side.url_variable else found
