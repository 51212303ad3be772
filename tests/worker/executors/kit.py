"""A queue whose handlers run in processes, in few words."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from penstock import Penstock
from penstock.app.place import place_of
from penstock.core.job import Job, QueueRef
from penstock.core.payload import decode_json
from penstock.stores.protocol import Store
from penstock.worker.executors.process.host import Host
from penstock.worker.worker import Worker
from tests.kit.waiting import until
from tests.worker.executors import handlers
from tests.worker.kit import StoppedDesk, running

WORK = QueueRef("default", "work")
BOX = QueueRef("default", "box")
PROGRAMS = QueueRef("default", "programs")


class Crew(StoppedDesk):
    """A queue of an app of handlers. Processes take long to start: no lease runs out meanwhile."""

    def __init__(
        self, queue: QueueRef = WORK, store: Store | None = None, app: Penstock = handlers.app
    ) -> None:
        super().__init__(queue, store)
        self.host: Host | None = None
        self.app = app

    async def add(self, task: str, /, timeout_ms: int | None = None, **arguments: Any) -> str:
        """A job with one attempt, unless its task says otherwise."""
        known = self.app.task_named(task)
        policy = known.defaults.policy
        return await self.enqueue(
            task,
            msgspec.json.encode(arguments),
            max_attempts=policy.max_attempts,
            timeout_ms=timeout_ms or policy.timeout_ms,
        )

    def worker(self, *functions: Callable[..., Any], **options: Any) -> Worker:
        defaults: dict[str, Any] = {"lease": 30.0, "shutdown_timeout": 5.0, "tick": 60.0, "clock": self.clock}
        settings = defaults | options
        self.host = Host(place_of(self.app))
        return Worker(self.store, self.queue, self.app.registry, host=self.host, **settings)

    async def run(self, *jobs: str, **options: Any) -> list[Job]:
        """Execute what is there; the records of these jobs."""
        await self.burst(**options)
        return [await self.job(job) for job in jobs]

    @asynccontextmanager
    async def at_work(self, **options: Any) -> AsyncIterator[Worker]:
        """A worker for the time of the block."""
        worker = self.worker(**options)
        async with running(worker):
            yield worker


def result_of(job: Job) -> Any:
    """What a completed job returned."""
    assert job.state == "completed", (job.reason, job.error)
    return None if job.result is None else decode_json("result", job.result)


async def appears(path: Path, text: str = "") -> None:
    """Wait until the file is there, with that text."""
    await until(lambda: path.exists() and text in path.read_text(), f"{path.name} with {text!r}")


async def pid_in(path: Path) -> int:
    """The number that a file holds, once it does."""
    await until(lambda: path.exists() and path.read_text().isdigit(), f"a number in {path.name}")
    return int(path.read_text())


def is_alive(pid: int) -> bool:
    """True for a process that runs; one that ended and was not reaped yet does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"
