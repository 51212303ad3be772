"""Starting, killing and stopping the worker processes of the demo."""

import asyncio
import signal
import sys
import time
from asyncio.subprocess import Process
from contextlib import suppress
from pathlib import Path
from typing import Final

from penstock.core.errors import PenstockError
from penstock.demo.record_file import REF
from penstock.stores.protocol import Store

STOP_SECONDS: Final = 15.0
FIND_SECONDS: Final = 2.0


class WorkerProcesses:
    """Worker processes by name; all are killed at the end of the block."""

    def __init__(self, url: str, directory: Path) -> None:
        self._url = url
        self._directory = directory
        self._workers: dict[str, Process] = {}
        self._started = 0

    async def __aenter__(self) -> "WorkerProcesses":
        return self

    async def __aexit__(self, *_: object) -> None:
        for process in self._workers.values():
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    async def start(self) -> str:
        """Start one more worker and return its name."""
        self._started += 1
        name = f"worker-{self._started}"
        with (self._directory / f"{name}.log").open("wb") as log:
            self._workers[name] = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "penstock.demo.worker_process",
                self._url,
                str(self._directory / "executed.jsonl"),
                name,
                stdin=asyncio.subprocess.PIPE,
                stdout=log,
                stderr=log,
            )
        return name

    async def kill_one(self, store: Store) -> tuple[str, int]:
        """Send SIGKILL to a worker that holds leases; its name, and the number of leases it left.

        If no worker holds a lease for a while, an idle worker is killed.
        """
        give_up = time.monotonic() + FIND_SECONDS
        while True:
            for name, process in list(self._workers.items()):
                self._check(name, process)
                # The worker is suspended, so that its leases are known when it dies.
                process.send_signal(signal.SIGSTOP)
                if await store.reads.leases(REF, name) or time.monotonic() > give_up:
                    process.kill()
                    await process.wait()
                    del self._workers[name]
                    return name, len(await store.reads.leases(REF, name))
                process.send_signal(signal.SIGCONT)
            await asyncio.sleep(0.01)

    def check(self) -> None:
        """Raise PenstockError if a worker ended by itself."""
        for name, process in self._workers.items():
            self._check(name, process)

    async def stop_all(self) -> None:
        """Send SIGTERM to all workers, and wait until they have ended."""
        for process in self._workers.values():
            process.terminate()
        for name, process in self._workers.items():
            try:
                async with asyncio.timeout(STOP_SECONDS):
                    await process.wait()
            except TimeoutError:
                raise PenstockError(f"{name} did not stop within {STOP_SECONDS:.0f} s of SIGTERM") from None
        self._workers.clear()

    def _check(self, name: str, process: Process) -> None:
        if process.returncode is not None:
            log = self._directory / f"{name}.log"
            last = log.read_text("utf-8", "replace").strip().rpartition("\n")[2]
            raise PenstockError(f"{name} ended by itself with code {process.returncode}: {last}")
