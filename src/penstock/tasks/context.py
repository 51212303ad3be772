"""What a running handler can know and say about its job."""

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, Final

from msgspec.structs import replace

from penstock.core.errors import PenstockError
from penstock.core.job import Claimed
from penstock.tasks.call import Call
from penstock.tasks.child_jobs import ChildJob, ChildJobs
from penstock.tasks.handle import JobHandle


class JobContext:
    """The running job, handed to a handler that has a parameter of this type.

    `fence` increases with every lease of this job: pass it along with writes elsewhere, so that they can
    refuse an older holder.
    """

    __slots__ = (
        "_cancelled",
        "_child_jobs",
        "_deadline",
        "_enqueued_at",
        "_lease",
        "_report",
        "attempt",
        "delivery",
        "drive",
        "fence",
        "id",
        "key",
        "max_attempts",
        "priority",
        "queue",
        "task",
        "tenant",
        "worker",
    )

    def __init__(
        self,
        *,
        id: str,  # noqa: A002 (the word for it)
        task: str,
        queue: str,
        tenant: str,
        worker: str,
        attempt: int,
        max_attempts: int,
        delivery: int,
        drive: int,
        fence: int,
        priority: int,
        key: str | None,
        enqueued_at: float,
        deadline: float,
        report: Callable[[Any], None],
        cancelled: Callable[[], bool],
        child_jobs: ChildJobs | None = None,
        lease: Claimed | None = None,
    ) -> None:
        self.id = id
        self.task = task
        self.queue = queue
        self.tenant = tenant
        self.worker = worker
        self.attempt = attempt
        self.max_attempts = max_attempts
        self.delivery = delivery
        self.drive = drive
        self.fence = fence
        self.priority = priority
        self.key = key
        self._enqueued_at = enqueued_at
        self._deadline = deadline
        self._report = report
        self._cancelled = cancelled
        self._child_jobs = child_jobs
        self._lease = lease

    @property
    def enqueued_at(self) -> datetime:
        """When the job was enqueued, by the store's clock."""
        return datetime.fromtimestamp(self._enqueued_at, UTC)

    @property
    def headers(self) -> dict[str, str]:
        """The headers of the job, such as the context of its trace."""
        return {} if self._lease is None else dict(self._lease.headers or {})

    def continue_trace(self, headers: Mapping[str, str]) -> None:
        """Let jobs that this one spawns carry on a trace from here, and not from where it was enqueued."""
        if self._lease is not None:
            self._lease = replace(self._lease, headers={**self.headers, **headers})

    @property
    def deadline(self) -> datetime:
        """When the execution timeout ends this execution, by the worker's clock."""
        return datetime.fromtimestamp(self._deadline, UTC)

    def progress(self, value: Any) -> None:
        """Tell how far the work is: any small JSON value. From any thread; the newest value counts."""
        self._report(value)

    async def children(self) -> list[ChildJob]:
        """The jobs that this one waited for, in the order it named them: how they ended, their results."""
        child_jobs, lease = self._family()
        return await child_jobs.children(lease)

    async def spawn(self, *calls: Call[Any]) -> list[JobHandle[Any]]:
        """Enqueue more jobs under the lease; whoever waits for this job waits for them too.

        StaleLeaseError when the lease is gone, and Cancel when the job is to be cancelled: then nothing is
        spawned. A job that runs again spawns again,
        unless the calls have ids: `task.options(id=f"{ctx.id}-1").call(…)` is the same job each time.
        """
        child_jobs, lease = self._family()
        return await child_jobs.spawn(lease, calls)

    @property
    def blocking(self) -> "BlockingChildJobs":
        """`children` and `spawn` for handlers that are plain functions."""
        return BlockingChildJobs(*self._family())

    def _family(self) -> tuple[ChildJobs, Claimed]:
        if self._child_jobs is None or self._lease is None:
            raise PenstockError("this context is not of a running job: it has no children")
        return self._child_jobs, self._lease

    @property
    def is_cancelled(self) -> bool:
        """True once someone asked for the job to be cancelled, or its lease is gone: stop when convenient."""
        return self._cancelled()

    @property
    def is_last_attempt(self) -> bool:
        """True when a failure now would bury the job."""
        return self.attempt >= self.max_attempts

    def __repr__(self) -> str:
        return f"<JobContext {self.queue}/{self.id} {self.task} attempt {self.attempt}>"


class BlockingChildJobs:
    """A running job's children, without await."""

    __slots__ = ("_child_jobs", "_lease")

    def __init__(self, child_jobs: ChildJobs, lease: Claimed) -> None:
        self._child_jobs = child_jobs
        self._lease = lease

    def children(self) -> list[ChildJob]:
        """As `ctx.children`."""
        return self._child_jobs.wait(self._child_jobs.children(self._lease))

    def spawn(self, *calls: Call[Any]) -> list[JobHandle[Any]]:
        """As `ctx.spawn`."""
        return self._child_jobs.wait(self._child_jobs.spawn(self._lease, calls))


CURRENT: Final[ContextVar[JobContext]] = ContextVar("penstock_job")


def current_job() -> JobContext:
    """The context of the job that runs here; PenstockError outside of a handler."""
    try:
        return CURRENT.get()
    except LookupError:
        raise PenstockError("no job is running here: current_job() is for handlers") from None
