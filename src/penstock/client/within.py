"""A job on its way into a transaction of the caller's."""

from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Generic, TypeVar

from penstock.core.errors import ConfigError
from penstock.core.job import NewJob, QueueRef
from penstock.core.outcomes import Enqueued, Refused
from penstock.stores.protocol import Store, Transactional
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


class Entry(Generic[R]):
    """A job that is ready, for a queue that is open: what is missing is the caller's connection."""

    def __init__(
        self,
        store: Transactional,
        queue: QueueRef,
        new: NewJob,
        wrapped: Callable[[SendNext], SendNext],
        handle: Callable[[Enqueued | Refused], JobHandle[R]],
    ) -> None:
        self._store = store
        self._queue = queue
        self._new = new
        self._wrapped = wrapped
        self._handle = handle

    async def enqueue(self, connection: object, *, blocking: bool) -> JobHandle[R]:
        """Take the job in; with `blocking`, without ever waiting."""
        send = partial(self._send, connection, blocking)
        return self._handle(await self._wrapped(send)(self._new))

    async def _send(self, connection: object, blocking: bool, new: NewJob) -> Enqueued | Refused:
        (answer,) = await self._store.enqueue_in(connection, self._queue, [new], blocking=blocking)
        return answer


def at_once(work: Coroutine[Any, Any, T]) -> T:
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
