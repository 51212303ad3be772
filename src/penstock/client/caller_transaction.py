"""Jobs on their way into a transaction of the caller's."""

from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

from penstock.core.errors import ConfigError, PenstockError
from penstock.core.job import NewJob
from penstock.core.outcomes import Enqueued, Refused
from penstock.stores.protocol import Store, Transactional
from penstock.stores.values import QueueInfo
from penstock.tasks.handle import JobHandle
from penstock.tasks.middleware import SendNext

R = TypeVar("R")
T = TypeVar("T")


def transactional(store: Store) -> Transactional:
    """The store, if it can be part of a transaction; ConfigError if not."""
    if not isinstance(store, Transactional):
        kind = type(store).__name__.removesuffix("Store")
        raise ConfigError(
            f"the app's store is {kind}, and no transaction of yours can reach into it: only a store on "
            "PostgreSQL, in the same database, can do that; for others there is penstock.outbox"
        )
    return store


class PendingEnqueue:
    """Jobs that are ready, for a queue that is open: what is missing is the caller's connection.

    `wrapped` puts the middleware around the way of each; None where there is none.
    """

    def __init__(
        self,
        store: Transactional,
        info: QueueInfo,
        jobs: Sequence[NewJob],
        wrapped: Callable[[SendNext], SendNext] | None,
    ) -> None:
        self._store = store
        self._queue = info.queue
        self._mode = info.mode
        self._jobs = jobs
        self._wrapped = wrapped

    async def enqueue(self, connection: object, *, blocking: bool) -> list[Enqueued | Refused]:
        """Take the jobs in; with `blocking`, without ever waiting."""
        if self._wrapped is None:
            return await self._store.enqueue_in(
                connection, self._queue, self._jobs, blocking=blocking, mode=self._mode
            )
        send = self._wrapped(partial(self._send, connection, blocking))
        return [await send(new) for new in self._jobs]

    async def _send(self, connection: object, blocking: bool, new: NewJob) -> Enqueued | Refused:
        (answer,) = await self._store.enqueue_in(
            connection, self._queue, [new], blocking=blocking, mode=self._mode
        )
        return answer


class PendingEnqueues(Generic[R]):
    """Many calls on their way: the jobs of each queue one entry after the other.

    `places` are those of an entry's jobs among the calls, `outcome` makes of an answer what the caller gets.
    """

    def __init__(
        self,
        entries: Sequence[tuple[Sequence[int], PendingEnqueue]],
        outcome: Callable[[int, Enqueued | Refused], JobHandle[R] | PenstockError],
    ) -> None:
        self._entries = entries
        self._outcome = outcome

    async def enqueue(self, connection: object, *, blocking: bool) -> list[JobHandle[R] | PenstockError]:
        """Take the jobs in; the outcomes in the order of the calls."""
        found: dict[int, JobHandle[R] | PenstockError] = {}
        for places, entry in self._entries:
            answers = await entry.enqueue(connection, blocking=blocking)
            for place, answer in zip(places, answers, strict=True):
                found[place] = self._outcome(place, answer)
        return [found[place] for place in sorted(found)]


def single_handle(sent: Sequence[JobHandle[R] | PenstockError]) -> JobHandle[R]:
    """The handle of the only call; its error is raised."""
    (outcome,) = sent
    if isinstance(outcome, PenstockError):
        raise outcome
    return outcome


def run_without_waiting(work: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that never waits; ConfigError where it does."""
    try:
        work.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    work.close()
    raise ConfigError(
        "the enqueue middleware of this app waits for something: in blocking code nothing can be awaited "
        "while the transaction's connection is in use"
    )
