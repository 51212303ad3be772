"""The test kit: an app in memory, looked into and run from a test."""

from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeVar

from penstock.app.app import Penstock
from penstock.core.job import Job, QueueRef
from penstock.core.payload import decode_json
from penstock.core.states import LIVE, State
from penstock.maintenance.relayer import relay
from penstock.schedules.ticker import Ticker
from penstock.stores.memory import MemoryStore
from penstock.stores.values import Query
from penstock.tasks.context import JobContext
from penstock.tasks.task import Task

T = TypeVar("T")
MOST_ROUNDS: Final = 1_000


@contextmanager
def in_memory(app: Penstock) -> Iterator["Kit"]:
    """The app with a fresh store in memory for the time of the block. Enter it before the app is opened."""
    store = MemoryStore()
    with app.using(store):
        yield Kit(app, store)


class Kit:
    """An app in memory. Everything but `drain` answers at once, in plain tests and in coroutines."""

    def __init__(self, app: Penstock, store: MemoryStore) -> None:
        self.app = app
        self.store = store

    @property
    def now(self) -> datetime:
        """The time by the store's clock."""
        return datetime.fromtimestamp(_answer(self.store.clock.now()) / 1000, UTC)

    def advance(self, by: timedelta | None = None, *, seconds: float = 0) -> None:
        """Advance the clock: jobs that were delayed by this long become due."""
        step = (by or timedelta()) + timedelta(seconds=seconds)
        _answer(self.store.clock.advance_clock(round(step / timedelta(milliseconds=1))))

    def jobs(
        self, task: Task[..., ..., Any] | str | None = None, *, state: State | str | None = None
    ) -> list[Job]:
        """The jobs in the store, of one task or in one state if you like; in the order they were enqueued."""
        states = frozenset[State]() if state is None else frozenset({State(state)})
        name = task.name if isinstance(task, Task) else task
        found: list[Job] = []
        for info in _answer(self.store.queues.list_queues(self.app.tenant)):
            page = _answer(self.store.reads.find(info.queue, Query(limit=1_000_000, task=name)))
            found += reversed(page.jobs)
        found.sort(key=lambda job: job.enqueued_at)
        return [job for job in found if not states or job.state in states]

    def assert_enqueued(self, task: Task[..., ..., Any] | str, /, *args: Any, **kwargs: Any) -> Job:
        """The newest job of the task with these arguments, among others it may have; in whatever state."""
        matches = self._matching(task, args, kwargs)
        assert matches, f"no job of {_named(task)} has {_told(args, kwargs)}; there are: {self._list(task)}"
        return matches[-1]

    def assert_not_enqueued(self, task: Task[..., ..., Any] | str, /, *args: Any, **kwargs: Any) -> None:
        """No job of the task has these arguments."""
        matches = self._matching(task, args, kwargs)
        assert not matches, f"{_named(task)} was enqueued with {_told(args, kwargs)}: {self._list(task)}"

    async def drain(self, *, rounds: int = MOST_ROUNDS) -> list[Job]:
        """Run jobs until none is live, turning the clock past every delay and retry; all jobs as they ended.

        Flows are carried from queue to queue. Schedules fire when their time has come; the clock is not
        turned for them alone. AssertionError when jobs are live after so many rounds, or nothing can make
        them run.
        """
        if not self.app.queues:
            return []
        async with self.app:
            for _ in range(rounds):
                await self.app.worker(burst=True).run()
                if await self._look_after():
                    continue
                live = self._live()
                if not live:
                    return self.jobs()
                due = [at for job in live if (at := self._due(job)) is not None]
                assert due, f"these jobs wait for something that is not time: {_listed(live)}"
                behind = min(due) - _answer(self.store.clock.now())
                _answer(self.store.clock.advance_clock(max(behind, 0)))
        raise AssertionError(f"after {rounds} rounds jobs are still live: {_listed(self._live())}")

    async def _look_after(self) -> bool:
        """Do what a worker's duties do meanwhile; True when that may have made jobs run."""
        queues = [info.queue for info in await self.store.queues.list_queues(self.app.tenant)]
        before = [await self.store.events.event_range(queue) for queue in queues]
        carried = 0
        for queue in queues:
            carried += await relay(self.store, queue)
            await Ticker(self.store, queue).attend()
        return carried > 0 or before != [await self.store.events.event_range(queue) for queue in queues]

    def _live(self) -> list[Job]:
        declared = [QueueRef(self.app.tenant, name) for name in self.app.queues]
        return [
            job
            for queue in declared
            for job in _answer(self.store.reads.find(queue, Query(states=LIVE, limit=1_000_000))).jobs
        ]

    def _due(self, job: Job) -> int | None:
        """When something can happen to the job; None if that is not a matter of time."""
        if job.state is not State.PENDING:
            return job.visible_at or job.deadline
        info = _answer(self.store.queues.find_queue(job.ref))
        pause = None if info is None else info.pause
        if pause is not None:
            return pause.until
        # Rates and limits hold it back: the store knows how long.
        claims = _answer(self.store.moves.claim(job.ref, worker="kit", limit=0, lease_ms=1_000))
        return _answer(self.store.clock.now()) + (claims.wait_ms or 0)

    def _matching(
        self, task: Task[..., ..., Any] | str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> list[Job]:
        wanted = task.encode_some(*args, **kwargs) if isinstance(task, Task) else kwargs
        return [job for job in self.jobs(task) if _has(decode_json("payload", job.payload), wanted)]

    def _list(self, task: Task[..., ..., Any] | str) -> str:
        return _listed(self.jobs(task)) or "none"


def job_context(**given: Any) -> JobContext:
    """A context to call a handler with directly; what is not given is that of a first attempt."""
    now = datetime.now(UTC)
    usual: dict[str, Any] = {
        "id": "01TEST",
        "task": "task",
        "queue": "default",
        "tenant": "default",
        "worker": "test",
        "attempt": 1,
        "max_attempts": 4,
        "delivery": 1,
        "drive": 1,
        "fence": 1,
        "priority": 5,
        "key": None,
        "enqueued_at": now,
        "deadline": now + timedelta(seconds=300),
        "report": lambda value: None,
        "cancelled": lambda: False,
    }
    fields = usual | given
    for name in ("enqueued_at", "deadline"):
        fields[name] = fields[name].timestamp()
    return JobContext(**fields)


def _answer(work: Coroutine[Any, Any, T]) -> T:
    """The answer of a coroutine that never waits, as those of the memory store."""
    try:
        work.send(None)
    except StopIteration as stop:
        answer: T = stop.value
        return answer
    work.close()
    raise RuntimeError("the memory store waited for something")


def _has(arguments: dict[str, Any], wanted: dict[str, Any]) -> bool:
    return all(name in arguments and arguments[name] == value for name, value in wanted.items())


def _named(task: Task[..., ..., Any] | str) -> str:
    return task if isinstance(task, str) else task.name


def _told(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    told = [repr(each) for each in args] + [f"{name}={value!r}" for name, value in kwargs.items()]
    return ", ".join(told) or "any arguments"


def _listed(jobs: list[Job]) -> str:
    return "; ".join(f"{job.task} {job.payload.decode()} ({job.state})" for job in jobs)
