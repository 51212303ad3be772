"""What a running job can know of its children and do for them."""

from collections.abc import Coroutine, Sequence
from typing import Any, Protocol, TypeVar

import msgspec

from penstock.core.flows import Child
from penstock.core.job import Claimed
from penstock.core.payload import decode_json
from penstock.core.states import State
from penstock.tasks.call import Call
from penstock.tasks.handle import JobHandle

T = TypeVar("T")


class ChildJob(msgspec.Struct, frozen=True):
    """A job that this one waited for. `state` is None when it was deleted, or has not ended."""

    queue: str
    id: str
    state: State | None
    encoded: bytes | None = None
    """Its result as JSON."""

    @classmethod
    def of(cls, child: Child) -> "ChildJob":
        """The child as its parent's record knows it."""
        return cls(child.ref.queue, child.ref.id, child.state, child.result)

    @property
    def succeeded(self) -> bool:
        """True when it completed."""
        return self.state is State.COMPLETED

    @property
    def result(self) -> Any:
        """What its handler returned, as plain JSON; None without success."""
        return None if self.encoded is None else decode_json("result", self.encoded)


class ChildJobs(Protocol):
    """How a worker answers for the jobs it runs."""

    async def children(self, job: Claimed, /) -> list[ChildJob]: ...

    async def spawn(self, job: Claimed, calls: Sequence[Call[Any]], /) -> list[JobHandle[Any]]: ...

    def wait(self, work: Coroutine[Any, Any, T], /) -> T:
        """The answer of a coroutine, from a thread."""
        ...
