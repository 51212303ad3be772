"""Who is told of the executions of a worker, on its event loop. It must be quick, and may not raise."""

from collections.abc import Sequence
from typing import Protocol

from penstock.core.job import Claimed, QueueRef
from penstock.core.moves import Settlement
from penstock.core.outcomes import Applied, Refused


class ExecutionObserver(Protocol):
    """Told of each delivery: its claim, its execution, and what the store made of its ending."""

    def claimed(self, queue: QueueRef, jobs: Sequence[Claimed], lease_ms: int) -> None:
        """Jobs were claimed, and their handlers are started."""
        ...

    def began(self, queue: QueueRef, job: Claimed) -> None:
        """The handler of a job begins."""
        ...

    def ended(self, queue: QueueRef, job: Claimed, seconds: float) -> None:
        """It has ended, in whatever way, after so many seconds."""
        ...

    def settled(
        self, queue: QueueRef, job: Claimed, settlement: Settlement, answer: Applied | Refused
    ) -> None:
        """The store has answered how the delivery ended."""
        ...
