"""A queue with tasks, jobs and a worker, in few words."""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from penstock.core.errors import StoreUnavailableError
from penstock.core.events import Event
from penstock.core.job import Job, NewJob, Options, QueueRef
from penstock.core.moves import Move
from penstock.core.retry import Backoff
from penstock.core.states import State
from penstock.stores.memory import MemoryStore
from penstock.stores.protocol import Store
from penstock.tasks.registry import Registry
from penstock.tasks.task import Task
from penstock.worker.clock import boottime
from penstock.worker.worker import Worker
from tests.kit.intercepted import InterceptedStore
from tests.kit.waiting import PATIENCE, eventually, until

AT_ONCE = Backoff.fixed(0)
T = TypeVar("T")
_numbers = itertools.count(1)
_BEGAN_US = time.time_ns() // 1000


def registry(*functions: Callable[..., Any]) -> Registry:
    """Tasks named like their functions. They are not enqueued from here, so nobody sends them."""
    made = Registry()
    for function in functions:
        made.add(Task(function, name=function.__name__, queue="q", sender=None))  # type: ignore[arg-type]
    return made


class StoppedClock:
    """A clock of workers that stands still until it is turned; `us` is that of a memory store.

    However long a busy machine takes, no lease runs out by it: a short one only says how often it is renewed.
    """

    def __init__(self) -> None:
        self._seconds = 1_000.0

    def __call__(self) -> float:
        return self._seconds

    def turn(self, seconds: float) -> None:
        """Let so many seconds pass."""
        self._seconds += seconds

    @staticmethod
    def us() -> int:
        """The time of a store, which only the store itself turns."""
        return _BEGAN_US


class Desk:
    """A store with one queue, and what a test asks about it. Its workers go by `clock`."""

    def __init__(
        self, queue: QueueRef, store: Store | None = None, clock: Callable[[], float] = boottime
    ) -> None:
        self.store: Store = MemoryStore() if store is None else store
        self.queue = queue
        self.clock = clock

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
        await self.store.moves.enqueue(self.queue, [new])
        return job

    def worker(self, *functions: Callable[..., Any], **options: Any) -> Worker:
        """A worker for the queue, with short waits."""
        defaults: dict[str, Any] = {"lease": 30.0, "shutdown_timeout": 5.0, "tick": 60.0, "clock": self.clock}
        settings = defaults | options
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
        (found,) = await self.store.reads.get(self.queue, [job])
        assert found is not None
        return found

    async def ended(self, job: str) -> Job:
        """The record once the job has ended."""

        async def has_ended() -> Job | None:
            found = await self.job(job)
            return found if found.state.is_ended else None

        found = await eventually(has_ended, f"the end of {job}")
        assert found is not None
        return found

    async def reaches(self, job: str, state: State) -> Job:
        """The record once the job is in that state."""

        async def is_there() -> bool:
            return (await self.job(job)).state is state

        await eventually(is_there, f"{job} being {state}")
        return await self.job(job)

    async def events(self, job: str) -> list[Event]:
        """What happened to the job."""
        return [event for event in await self.store.events.read_events(self.queue) if event.job == job]

    async def moves(self, job: str) -> list[Move]:
        """The moves that the job made."""
        return [event.move for event in await self.events(job)]

    async def active(self) -> int:
        """How many leases there are."""
        return len(await self.store.reads.leases(self.queue))


class StoppedDesk(Desk):
    """A queue whose workers go by a clock that stands still, as its store does unless one is given."""

    def __init__(self, queue: QueueRef, store: Store | None = None) -> None:
        self.stopped = StoppedClock()
        super().__init__(queue, store or MemoryStore(clock_us=StoppedClock.us), self.stopped)

    async def turn(self, seconds: float) -> None:
        """Let so many seconds pass, for the workers and for the store."""
        self.stopped.turn(seconds)
        await self.store.clock.advance_clock(round(seconds * 1000))

    async def pass_leases(self, lease: float, count: int = 3) -> None:
        """Let that many leases pass; each lease that there is has to be renewed in each third of it."""

        async def are_renewed() -> bool:
            end = await self.store.clock.now() + round(lease * 1000)
            leases = await self.store.reads.leases(self.queue)
            return bool(leases) and all(each.deadline >= end for each in leases)

        for _ in range(3 * count + 1):
            await self.turn(lease / 3)
            await eventually(are_renewed, "the renewal of every lease")


def blocking(work: Coroutine[Any, Any, T]) -> T:
    """What the coroutine returns, in a loop of another thread: the one that calls is blocked meanwhile."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()


async def loop_turns(count: int = 200) -> None:
    """Let the event loop do all that is ready, and what follows from that: for what must not happen."""
    for _ in range(count):
        await asyncio.sleep(0)


async def rests(worker: Worker) -> None:
    """Wait until the worker has nothing to claim, and waits to hear of more."""

    def is_waiting() -> bool:
        return worker._run is not None and worker._run._claims._is_listening

    await until(is_waiting, "the rest of the worker")


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


class Cut(InterceptedStore):
    """A store that can lose calls before they are applied, and answers after."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.lose_before: dict[str, int] = {}
        self.lose_after: dict[str, int] = {}
        self.is_down = False
        self.calls: list[str] = []

    async def claim(self, *args: Any, **kwargs: Any) -> Any:
        return await self._through("claim", self.real.moves.claim, args, kwargs)

    async def settle(self, *args: Any, **kwargs: Any) -> Any:
        return await self._through("settle", self.real.moves.settle, args, kwargs)

    async def heartbeat(self, *args: Any, **kwargs: Any) -> Any:
        return await self._through("heartbeat", self.real.moves.heartbeat, args, kwargs)

    async def leases(self, *args: Any, **kwargs: Any) -> Any:
        return await self._through("leases", self.real.reads.leases, args, kwargs)

    async def cancel(self, *args: Any, **kwargs: Any) -> Any:
        return await self._through("cancel", self.real.moves.cancel, args, kwargs)

    async def progress(self, *args: Any, **kwargs: Any) -> Any:
        return await self._through("progress", self.real.moves.progress, args, kwargs)

    async def list_workers(self, *args: Any, **kwargs: Any) -> Any:
        return await self._through("list_workers", self.real.workers.list_workers, args, kwargs)

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
