"""What a process counts of its own work: plain numbers, changed on the event loop and read by any thread."""

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any, Final

from penstock.core.job import Claimed, QueueRef
from penstock.core.moves import Complete, Move, Settlement
from penstock.core.outcomes import Applied, Refused
from penstock.core.states import State
from penstock.metrics.families import OTHER
from penstock.metrics.labels import MOST_QUEUES, MOST_SERIES, MOST_TASKS, BoundedQueues
from penstock.metrics.latency import SIZES, Histogram, RecentValues

OUTCOMES: Final = {
    (Move.COMPLETE, State.COMPLETED): "completed",
    (Move.FAIL, State.FAILED): "failed",
    (Move.RETRY, State.DELAYED): "retried",
    (Move.BURY, State.DEAD): "dead",
    (Move.SNOOZE, State.DELAYED): "snoozed",
    (Move.RELEASE, State.PENDING): "released",
}
"""What a settlement led to, by its move and the state afterwards; a requested cancel makes others of them."""
COMPLETED: Final = "completed"
CANCELLED: Final = "cancelled"
LOST: Final = "lost"


class TaskStats:
    """Of one task in one queue."""

    __slots__ = ("outcomes", "run", "task", "wait")

    def __init__(self, task: str) -> None:
        self.task = task
        self.wait = Histogram()
        self.run = Histogram()
        self.outcomes: Counter[str] = Counter()


class QueueStats:
    """Of one queue; tasks beyond the bound are counted as one."""

    __slots__ = (
        "_may_add",
        "_tasks",
        "claims",
        "expired",
        "moves",
        "queue",
        "recent_run",
        "recent_wait",
        "running",
    )

    def __init__(self, queue: QueueRef, may_add: Callable[[], bool]) -> None:
        self.queue = queue
        self.running = 0
        self.claims = Histogram(SIZES)
        self.moves: Counter[tuple[str, str]] = Counter()
        self.expired: Counter[str] = Counter()
        self.recent_wait = RecentValues()
        self.recent_run = RecentValues()
        self._may_add = may_add
        self._tasks: dict[str, TaskStats] = {}

    def task(self, name: str) -> TaskStats:
        """The numbers of a task."""
        known = self._tasks.get(name)
        if known is not None:
            return known
        if len(self._tasks) >= MOST_TASKS or not self._may_add():
            name = OTHER
        return self._tasks.setdefault(name, TaskStats(name))

    @property
    def tasks(self) -> list[TaskStats]:
        """The numbers of all tasks."""
        return list(self._tasks.copy().values())

    @property
    def completed(self) -> int:
        """Completed jobs of all tasks."""
        return sum(each.outcomes["completed"] for each in self.tasks)


class CallStats:
    """Of one call of the store."""

    __slots__ = ("call", "errors", "part", "seconds")

    def __init__(self, part: str, call: str) -> None:
        self.part = part
        self.call = call
        self.seconds = Histogram()
        self.errors = 0


class Metrics:
    """The numbers of a process: an observer of its store and of its executions.

    Give it to `app.instrument` before the app is opened. At most `most_queues` queues have numbers of their
    own, with 50 tasks in each and `most_series` in all.
    """

    def __init__(self, *, most_queues: int = MOST_QUEUES, most_series: int = MOST_SERIES) -> None:
        self._most_series = most_series
        self._series = 0
        self._queues: BoundedQueues[QueueStats] = BoundedQueues(
            lambda queue: QueueStats(queue, self._may_add_task), most_queues
        )
        self._calls: dict[tuple[str, str], CallStats] = {}
        self._counting: dict[tuple[str, str], Callable[[Any, Any], None]] = {
            ("moves", "claim"): self._claim,
            ("moves", "settle"): self._settle,
            ("moves", "expire"): self._expire,
            ("moves", "enqueue"): self._enqueue,
            ("moves", "promote"): partial(self._number, "promote"),
            ("moves", "prune"): partial(self._number, "prune"),
            ("moves", "cancel"): partial(self._answers, "cancel"),
            ("moves", "redrive"): partial(self._answers, "redrive"),
            ("moves", "delete"): partial(self._answers, "delete"),
        }

    def queue(self, queue: QueueRef) -> QueueStats:
        """The numbers of a queue; those of all others together, where there are too many."""
        return self._queues.of(queue)

    @property
    def queues(self) -> list[QueueStats]:
        """The numbers of all queues."""
        return self._queues.all()

    @property
    def calls(self) -> list[CallStats]:
        """The numbers of all calls of the store."""
        return list(self._calls.copy().values())

    def _may_add_task(self) -> bool:
        self._series += 1
        return self._series <= self._most_series

    # An observer of executions

    def claimed(self, queue: QueueRef, jobs: Sequence[Claimed], lease_ms: int) -> None:
        """Jobs were claimed, and their handlers are started."""
        stats = self._queues.of(queue)
        for job in jobs:
            if job.delivery == 1:
                # The store's clock gave both, whatever that of this process says.
                seconds = max(0, job.deadline - lease_ms - job.enqueued_at) / 1000
                stats.task(job.task).wait.add(seconds)
                stats.recent_wait.add(seconds)

    def began(self, queue: QueueRef, job: Claimed) -> None:
        """The handler of a job begins."""
        self._queues.of(queue).running += 1

    def ended(self, queue: QueueRef, job: Claimed, seconds: float) -> None:
        """It has ended, in whatever way, after so many seconds."""
        stats = self._queues.of(queue)
        stats.running -= 1
        stats.task(job.task).run.add(seconds)
        stats.recent_run.add(seconds)

    def settled(
        self, queue: QueueRef, job: Claimed, settlement: Settlement, answer: Applied | Refused
    ) -> None:
        """The store has answered how the delivery ended."""
        outcome = LOST
        if type(settlement) is Complete and type(answer) is Applied and answer.state is State.COMPLETED:
            # Nearly all: hashing enum members runs Python.
            outcome = COMPLETED
        elif type(answer) is Applied:
            outcome = OUTCOMES.get((settlement.move, answer.state), CANCELLED)
        self._queues.of(queue).task(job.task).outcomes[outcome] += 1

    # An observer of the store

    def answered(self, part: str, call: str, seconds: float, args: tuple[Any, ...], answer: Any) -> None:
        """A call was answered."""
        self._call(part, call).seconds.add(seconds)
        count = self._counting.get((part, call))
        if count is not None:
            count(args, answer)

    def failed(self, part: str, call: str, seconds: float, error: BaseException) -> None:
        """A call raised. One that was cut off by its caller is no error of the store."""
        stats = self._call(part, call)
        stats.seconds.add(seconds)
        if isinstance(error, Exception):
            stats.errors += 1

    def _call(self, part: str, call: str) -> CallStats:
        known = self._calls.get((part, call))
        return known if known is not None else self._calls.setdefault((part, call), CallStats(part, call))

    def _claim(self, args: Any, claims: Any) -> None:
        stats = self._queues.of(args[0])
        stats.claims.add(len(claims.jobs))
        if claims.jobs:
            stats.moves["claim", "applied"] += len(claims.jobs)

    def _settle(self, args: Any, answers: Collection[Any]) -> None:
        moves, completed = self._queues.of(args[0]).moves, 0
        for settlement, answer in zip(args[1], answers, strict=True):
            if type(settlement) is Complete and type(answer) is Applied:
                completed += 1
            else:
                moves[settlement.move.value, _result(answer)] += 1
        if completed:
            moves["complete", "applied"] += completed

    def _expire(self, args: Any, answers: Collection[Any]) -> None:
        stats = self._queues.of(args[0])
        for answer in answers:
            stats.moves["expire", _result(answer)] += 1
            if type(answer) is Applied:
                stats.expired[answer.state.value] += 1

    def _enqueue(self, args: Any, answers: Collection[Any]) -> None:
        moves = self._queues.of(args[0]).moves
        for answer in answers:
            if isinstance(answer, Refused):
                moves["enqueue", answer.why.value] += 1
            else:
                moves["enqueue", "applied" if answer.created else "known"] += 1

    def _answers(self, move: str, args: Any, answers: Collection[Any]) -> None:
        moves = self._queues.of(args[0]).moves
        for answer in answers:
            moves[move, _result(answer)] += 1

    def _number(self, move: str, args: Any, count: int) -> None:
        if count:
            self._queues.of(args[0]).moves[move, "applied"] += count


def _result(answer: Applied | Refused) -> str:
    return "applied" if type(answer) is Applied else answer.why.value  # type: ignore[union-attr]
