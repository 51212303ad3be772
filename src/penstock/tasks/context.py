"""What a running handler can know and say about its job."""

from collections.abc import Callable
from contextvars import ContextVar
from datetime import datetime
from typing import Any, Final

from penstock.core.errors import PenstockError


class JobContext:
    """The running job, handed to a handler that has a parameter of this type.

    `deadline` is when the execution timeout ends it. `fence` increases with every lease of this job: pass
    it along with writes elsewhere, so that they can refuse an older holder.
    """

    __slots__ = (
        "_cancelled",
        "_report",
        "attempt",
        "deadline",
        "delivery",
        "drive",
        "enqueued_at",
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
        enqueued_at: datetime,
        deadline: datetime,
        report: Callable[[Any], None],
        cancelled: Callable[[], bool],
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
        self.enqueued_at = enqueued_at
        self.deadline = deadline
        self._report = report
        self._cancelled = cancelled

    def progress(self, value: Any) -> None:
        """Tell how far the work is: any small JSON value. From any thread; the newest value counts."""
        self._report(value)

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


CURRENT: Final[ContextVar[JobContext]] = ContextVar("penstock_job")


def current_job() -> JobContext:
    """The context of the job that runs here; PenstockError outside of a handler."""
    try:
        return CURRENT.get()
    except LookupError:
        raise PenstockError("no job is running here: current_job() is for handlers") from None
