"""The way into one queue: single jobs join, many go in chunks."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Final

from penstock.client.coalesce import Coalescer
from penstock.client.known_keys import KnownKeys
from penstock.client.retrying import RetryingCaller
from penstock.core.errors import DeclarationError, FlowError, PenstockError, StoreError
from penstock.core.job import DEFAULT_PRIORITY, NewJob, QueueRef
from penstock.core.outcomes import Enqueued, Refusal, Refused
from penstock.core.states import State
from penstock.stores.bounds import CHUNK_BYTES, CHUNK_JOBS
from penstock.stores.protocol import Store
from penstock.stores.values import QueueInfo
from penstock.tasks.middleware import EnqueueMiddleware, SendNext

JOB_OVERHEAD: Final = 300
"""Bytes that a job takes on its way beside its payload."""
FIRST_JOBS: Final = CHUNK_JOBS // 8
"""The first of several chunks for a server is a short one: the sooner it is there, the sooner both work.

The next ones grow, so that each is made while the server takes in the one before."""
SENT_AHEAD: Final = 2
"""Chunks of one call that are on their way at once: one is packed here while the store takes in another."""

Answer = Enqueued | Refused | PenstockError


class QueueProducer:
    """Of one queue, as the store knew it when this client looked last; `look` asks the store once more."""

    def __init__(
        self,
        store: Store,
        info: QueueInfo,
        retrying: RetryingCaller,
        middleware: Sequence[EnqueueMiddleware],
        look: Callable[[], Awaitable[QueueInfo]],
        known_keys: KnownKeys | None = None,
    ) -> None:
        self.info = info
        self._look = look
        self._store = store
        self._queue = info.queue
        self._retrying = retrying
        self._middleware = middleware
        self._known_keys = known_keys
        # Where some keys are looked up first, a call could overtake the one before it.
        self._ahead = SENT_AHEAD if store.keeps_call_order and known_keys is None else 1
        self._coalescer: Coalescer[NewJob, Enqueued | Refused] = Coalescer(
            self._enqueue,
            limit=CHUNK_JOBS,
            size=_size,
            size_limit=CHUNK_BYTES,
            ahead=self._ahead if store.is_server else 1,
        )

    async def send(self, new: NewJob) -> Enqueued | Refused:
        if not self._middleware:
            return await self._coalescer.do(new)
        return await self.wrapped(self._coalescer.do)(new)

    async def shaped(self, new: NewJob) -> NewJob:
        """The job as the middleware lets it through; it is sent later, with the others of its flow."""
        kept: list[NewJob] = []

        async def keep(shaped: NewJob) -> Enqueued | Refused:
            kept.append(shaped)
            return Enqueued(shaped.id, True, State.BLOCKED if shaped.awaits else State.PENDING)

        await self.wrapped(keep)(new)
        if not kept or (kept[-1].id, kept[-1].awaits, kept[-1].parents) != (new.id, new.awaits, new.parents):
            raise FlowError(f"middleware held back a job of {new.task!r}, or changed its place in the flow")
        return kept[-1]

    def wrapped(self, call: SendNext) -> SendNext:
        """The call, with the middleware around it."""
        for each in reversed(self._middleware):
            call = partial(_through, each, self._queue, call)
        return call

    async def send_many(self, jobs: Iterable[NewJob], count: int) -> AsyncIterator[Sequence[Answer]]:
        """The answers in the order of so many jobs; both are dealt with while the store works."""
        if self._middleware:
            yield await asyncio.gather(*(self._sent(new) for new in jobs))
            return
        sent: deque[tuple[int, asyncio.Task[list[Enqueued | Refused]]]] = deque()
        error: PenstockError | None = None
        rest = chunks(jobs, first=FIRST_JOBS if self._store.is_server and count > CHUNK_JOBS else CHUNK_JOBS)
        while True:
            while error is None and len(sent) < self._ahead and (chunk := next(rest, None)) is not None:
                sent.append((len(chunk), asyncio.create_task(self._enqueue(chunk))))
                await asyncio.sleep(0)  # out it goes, before the next is made
            if not sent:
                break
            count, task = sent.popleft()
            try:
                yield await task
            except (StoreError, DeclarationError) as failed:
                error = failed
                yield [error] * count
        if error is not None:
            # The store stays away: what follows was not sent, and gets the same answer.
            yield [error for _ in chain.from_iterable(rest)]

    async def look_again(self) -> None:
        """Take the queue as the store knows it now; DeclarationError when that is not what the app says."""
        self.info = await self._look()

    async def flush(self) -> None:
        await self._coalescer.flush()

    async def _sent(self, new: NewJob) -> Answer:
        try:
            return await self.send(new)
        except PenstockError as error:
            return error
        except Exception as cause:  # noqa: BLE001 (middleware is the user's code)
            stopped = PenstockError(f"middleware stopped the enqueue of {new.task!r}: {cause!r}")
            stopped.__cause__ = cause
            return stopped

    async def _enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued | Refused]:
        answers = await self._call(jobs)
        if not any(isinstance(each, Refused) and each.why is Refusal.MODE for each in answers):
            return answers
        await self.look_again()
        has_keys = self.info.mode.has_keys
        fitting = [new for new in jobs if not has_keys or new.priority == DEFAULT_PRIORITY]
        rest = iter(await self._call(fitting) if fitting else ())
        taken = {id(new) for new in fitting}
        return [next(rest) if id(new) in taken else Refused(Refusal.MODE) for new in jobs]

    async def _call(self, jobs: Sequence[NewJob]) -> list[Enqueued | Refused]:
        mode = self.info.mode
        if self._known_keys is not None and any(new.idempotency_key is not None for new in jobs):
            return await self._known_keys.enqueue(self._queue, jobs, mode)
        # The same ids and nonces each time: what an earlier call brought in is found, not doubled.
        return await self._retrying.call(lambda: self._store.moves.enqueue(self._queue, jobs, mode=mode))


async def _through(
    middleware: EnqueueMiddleware, queue: QueueRef, call_next: SendNext, new: NewJob
) -> Enqueued | Refused:
    return await middleware(new, queue, call_next)


def _size(new: NewJob) -> int:
    return len(new.payload) + JOB_OVERHEAD


def chunks(
    jobs: Iterable[NewJob], most: int = CHUNK_JOBS, *, first: int = CHUNK_JOBS
) -> Iterator[list[NewJob]]:
    """The jobs in as many calls to a store as they take, of so many jobs at most."""
    chunk: list[NewJob] = []
    size, length = 0, min(first, most)
    for new in jobs:
        its_size = _size(new)
        if chunk and (len(chunk) == length or size + its_size > CHUNK_BYTES):
            yield chunk
            chunk, size, length = [], 0, min(2 * length, most)
        chunk.append(new)
        size += its_size
    if chunk:
        yield chunk
