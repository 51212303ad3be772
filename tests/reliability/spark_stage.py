"""Programs on Spark, each in processes of its own that are killed together, and what they tell of themselves.

A program is a function of a module. It is handed the session, a `tell` for lines to whoever started it, and
what else it was started with.
"""

import importlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

PATIENCE: Final = 300.0
SETTINGS: Final = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.executor.memory": "512m",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.log.level": "ERROR",
    # A lost executor counts as a failure of the tasks it had, which also fail by themselves.
    "spark.task.maxFailures": "10",
}


class Program:
    """A running program. What it tells is read as it comes; the rest of its output is in `log`."""

    def __init__(self, function: Callable[..., None], log: Path, *, master: str, **given: Any) -> None:
        target = f"{function.__module__}:{function.__name__}"
        command = [sys.executable, "-m", "tests.reliability.spark_stage", master, target, json.dumps(given)]
        # What it was started with may be killed at any time: its processes are a group of their own.
        with log.open("ab") as file:
            self.process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=file, start_new_session=True, text=True
            )
        self.told: list[str] = []
        self._log = log
        self._has_news = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def wait_for(self, line: str) -> None:
        """Until it told this."""
        with self._has_news:
            self._has_news.wait_for(lambda: line in self.told or self.process.poll() is not None, PATIENCE)
        assert line in self.told, f"it never told {line!r}: {self._said()}"

    def finish(self) -> None:
        """Until it has ended by itself, well."""
        code = self.process.wait(PATIENCE)
        self._reader.join(10)

        assert code == 0, self._said()

    def kill(self) -> None:
        """SIGKILL to all its processes."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(30)
        self._reader.join(10)

    def executors(self) -> list[int]:
        """The processes of its executors, where it runs on a cluster."""
        found = []
        for each in Path("/proc").iterdir():
            with suppress(OSError, ValueError):
                is_ours = os.getsid(int(each.name)) == self.process.pid
                if is_ours and b"CoarseGrainedExecutorBackend" in (each / "cmdline").read_bytes():
                    found.append(int(each.name))
        return found

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                with self._has_news:
                    self.told.append(line.strip())
                    self._has_news.notify_all()
        with self._has_news:
            self._has_news.notify_all()

    def _said(self) -> str:
        lines = self._log.read_text(errors="replace").splitlines()
        return "\n".join(line for line in lines if not line.startswith("\tat "))[-5_000:]


@contextmanager
def running(
    function: Callable[..., None], log: Path, *, master: str = "local[2,4]", **given: Any
) -> Iterator[Program]:
    """The program, for the time of the block."""
    program = Program(function, log, master=master, **given)
    try:
        yield program
    finally:
        program.kill()


def _tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _main() -> None:
    from penstock.spark import session

    master, target, given = sys.argv[1:]
    module, _, name = target.partition(":")
    function = getattr(importlib.import_module(module), name)
    spark = session("penstock-torture", master, **SETTINGS)
    function(spark, _tell, **json.loads(given))
    spark.stop()


if __name__ == "__main__":
    _main()
