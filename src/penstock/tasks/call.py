"""A call of a task that was not sent yet, and who sends it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import msgspec

from penstock.core.errors import ConfigError, PenstockError
from penstock.core.job import Job
from penstock.core.states import State
from penstock.tasks.flow_handle import FlowHandle, FlowReader
from penstock.tasks.handle import JobHandle
from penstock.tasks.options import JobOptions

if TYPE_CHECKING:
    from penstock.tasks.flow import Flow

R = TypeVar("R")


class Call(msgspec.Struct, Generic[R], frozen=True, kw_only=True, eq=False, gc=False):
    """A task with its arguments and options, checked and encoded. `sender` is its app's, if it has one."""

    task: str
    queue: str
    payload: bytes
    options: JobOptions
    decode: Callable[[bytes | None], Any]
    sender: "FlowSender | None" = None

    def __repr__(self) -> str:
        return f"<Call {self.task} in {self.queue}, {len(self.payload)} bytes>"


AnyCall = Call[R] | tuple[Any, ...] | Mapping[str, Any]
"""What `enqueue_many` takes: `task.call(...)`, a tuple of arguments, or a dict of them by name."""


def check_own(sender: object, calls: Iterable[Call[Any]]) -> None:
    """ConfigError for a call of a task that another app declared: it would go into this app's store.

    `sender` is this app's. Calls that no app made are let through.
    """
    for call in calls:
        check_sender(sender, call.sender, call.task, call.queue)


def check_sender(sender: object, found: object, task: str, queue: str) -> None:
    """ConfigError where the sender found at a task is not `sender`, that of this app."""
    if found is not None and found is not sender:
        raise ConfigError(
            f"task {task!r} is one of another app: use that app for it, or name it here "
            f"with app.by_name({task!r}, queue={queue!r})"
        )


class Sender(Protocol):
    """Whoever brings calls to the store and looks after the jobs; an app or its client."""

    async def send(self, call: Call[R], /) -> JobHandle[R]:
        """The job for the call."""
        ...

    async def send_in(self, connection: object, call: Call[R], /) -> JobHandle[R]:
        """The job for the call, as part of the transaction that the connection is in."""
        ...

    async def send_many_in(
        self, connection: object, calls: Sequence[Call[R]], /
    ) -> list[JobHandle[R] | PenstockError]:
        """The same for many calls, in their order; an error stands where the store refused one."""
        ...

    async def send_many(self, calls: Sequence[Call[R]], /) -> list[JobHandle[R] | PenstockError]:
        """The jobs for the calls, or why there is none, in their order."""
        ...

    async def job(self, queue: str, job: str, /) -> Job:
        """The record; JobNotFoundError when there is none."""
        ...

    async def ended(self, queue: str, job: str, timeout: float | None, /) -> Job:
        """The record once the job has ended; ResultTimeoutError when that takes longer."""
        ...

    async def cancel(self, queue: str, job: str, /) -> State:
        """Cancelled, or active with the request noted."""
        ...


class FlowSender(Sender, FlowReader, Protocol):
    """Whoever also brings whole flows to the store."""

    async def send_flow(self, flow: "Flow", /) -> FlowHandle:
        """The flow, taken in as a whole."""
        ...
