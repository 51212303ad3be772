"""A queue with tasks, jobs and a worker, in few words."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from penstock.core.errors import StoreUnavailableError
from penstock.core.events import Event
from penstock.core.job import Job, NewJob, Options, QueueRef
from penstock.core.moves import Move
from penstock.core.retry import Backoff
from penstock.core.states import State
from penstock.stores.memory import MemoryStore
from penstock.stores.protocol import Store
from penstock.stores.values import Topic
from penstock.tasks.registry import Registry
from penstock.tasks.task import Task
from penstock.worker.worker import Worker

AT_ONCE = Backoff.fixed(0)
PATIENCE = 20.0
_numbers = itertools.count(1)


def registry(*functions: Callable[..., Any]) -> Registry:
    """Tasks named like their functions. They are not enqueued from here, so nobody sends them."""
    made = Registry()
    for function in functions:
        made.add(Task(function, name=function.__name__, queue="q", sender=None))  # type: ignore[arg-type]
    return made


class Desk:
    """A store with one queue, and what a test asks about it."""

    def __init__(self, queue: QueueRef, store: Store | None = None) -> None:
        self.store: Store = MemoryStore() if store is None else store
        self.queue = queue

    async def enqueue(self, task: str, payload: bytes = b"{}", *, delay_ms: int = 0, **options: Any) -> str:
        """A new job; it is tried again at once unless told otherwise."""
        job = f"job-{next(_numbers)}"
        new = NewJob(
            id=job,
            nonce="n",
            task=task,
            payload=payload,
            delay_ms=delay_ms,
            options=Options(**({"backoff": AT_ONCE} | options)),
        )
        await self.store.enqueue(self.queue, [new])
        return job

    def worker(self, *functions: Callable[..., Any], **options: Any) -> Worker:
        """A worker for the queue, with short waits."""
        settings = {"lease": 30.0, "shutdown_timeout": 5.0, "tick": 60.0} | options
        return Worker(self.store, self.queue, registry(*functions), **settings)

    async def burst(self, *functions: Callable[..., Any], **options: Any) -> None:
        """Run what is claimable."""
        async with asyncio.timeout(PATIENCE):
            await self.worker(*functions, burst=True, **options).run()

    @asynccontextmanager
    async def working(self, *functions: Callable[..., Any], **options: Any) -> AsyncIterator[Worker]:
        """A worker that runs for the time of the block."""
        worker = self.worker(*functions, **options)
        async with running(worker):
            yield worker

    async def job(self, job: str) -> Job:
        """The record."""
        (found,) = await self.store.get(self.queue, [job])
        assert found is not None
        return found

    async def ended(self, job: str) -> Job:
        """The record once the job has ended."""
        async with asyncio.timeout(PATIENCE), self.store.bell(self.queue, Topic.ENDED) as bell:
            while not (found := await self.job(job)).state.is_ended:
                await bell.wait(1.0)
            return found

    async def reaches(self, job: str, state: State) -> Job:
        """The record once the job is in that state."""

        async def is_there() -> bool:
            return (await self.job(job)).state is state

        await eventually(is_there)
        return await self.job(job)

    async def events(self, job: str) -> list[Event]:
        """What happened to the job."""
        return [event for event in await self.store.events(self.queue) if event.job == job]

    async def moves(self, job: str) -> list[Move]:
        """The moves that the job made."""
        return [event.move for event in await self.events(job)]

    async def active(self) -> int:
        """How many leases there are."""
        return len(await self.store.leases(self.queue))


async def eventually(check: Callable[[], Awaitable[bool]]) -> None:
    """Wait until it is so."""
    async with asyncio.timeout(PATIENCE):
        while not await check():  # noqa: ASYNC110 (nobody tells of it)
            await asyncio.sleep(0.005)


@asynccontextmanager
async def running(worker: Worker) -> AsyncIterator[asyncio.Task[None]]:
    """The worker's run for the time of the block; afterwards it is stopped, and must have raised nothing."""
    run = asyncio.create_task(worker.run())
    try:
        yield run
    finally:
        worker.stop(now=True)
        async with asyncio.timeout(PATIENCE):
            await run


class Cut(MemoryStore):
    """A store that can lose calls before they are applied, and answers after."""

    def __init__(self) -> None:
        super().__init__()
        self.lose_before: dict[str, int] = {}
        self.lose_after: dict[str, int] = {}
        self.is_down = False
        self.calls: list[str] = []

    async def claim(self, *args: Any, **kwargs: Any) -> Any:
        return await self._through("claim", super().claim, args, kwargs)

    async def settle(self, *args: Any, **kwargs: Any) -> Any:
        return await self._through("settle", super().settle, args, kwargs)

    async def heartbeat(self, *args: Any, **kwargs: Any) -> Any:
        return await self._through("heartbeat", super().heartbeat, args, kwargs)

    async def leases(self, *args: Any, **kwargs: Any) -> Any:
        return await self._through("leases", super().leases, args, kwargs)

    async def cancel(self, *args: Any, **kwargs: Any) -> Any:
        return await self._through("cancel", super().cancel, args, kwargs)

    async def progress(self, *args: Any, **kwargs: Any) -> Any:
        return await self._through("progress", super().progress, args, kwargs)

    async def workers(self, *args: Any, **kwargs: Any) -> Any:
        return await self._through("workers", super().workers, args, kwargs)

    async def _through(
        self, name: str, call: Callable[..., Awaitable[Any]], args: Sequence[Any], kwargs: dict[str, Any]
    ) -> Any:
        self.calls.append(name)
        if self.is_down or self._spend(self.lose_before, name):
            raise StoreUnavailableError(f"{name} did not arrive")
        answer = await call(*args, **kwargs)
        if self._spend(self.lose_after, name):
            raise StoreUnavailableError(f"the answer to {name} was lost")
        return answer

    def _spend(self, losses: dict[str, int], name: str) -> bool:
        left = losses.get(name, 0)
        if left:
            losses[name] = left - 1
        return left > 0
