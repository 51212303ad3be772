"""The client: brings calls into the store and looks after the jobs they become."""

import asyncio
import secrets
import time
from collections.abc import Collection, Iterator, Sequence
from difflib import get_close_matches
from functools import partial
from typing import Any, Final, TypeVar

from penstock.client.coalesce import Coalescer
from penstock.client.persist import Persistence
from penstock.client.waiting import Watch
from penstock.core.errors import (
    DuplicateJobError,
    IdempotencyConflictError,
    JobNotFoundError,
    PenstockError,
    QueueFullError,
    StoreError,
    UnknownQueueError,
    WrongStateError,
)
from penstock.core.ids import IdMaker
from penstock.core.job import DEFAULT_TENANT, Job, NewJob, QueueRef
from penstock.core.names import check_name
from penstock.core.outcomes import Applied, Enqueued, Refusal, Refused
from penstock.core.states import State
from penstock.stores.protocol import CHUNK_BYTES, CHUNK_JOBS, Store
from penstock.tasks.call import Call
from penstock.tasks.handle import JobHandle
from penstock.tasks.middleware import EnqueueMiddleware, SendNext

R = TypeVar("R")
JOB_OVERHEAD: Final = 300
"""Bytes that a job takes on its way beside its payload."""


class Client:
    """Enqueues into one open store, on one event loop.

    `declared` names queues that may be made when they are new; None allows any name. Calls that meet a store
    which cannot be reached are repeated with the same job ids: none is enqueued twice.
    """

    def __init__(
        self,
        store: Store,
        *,
        tenant: str = DEFAULT_TENANT,
        declared: Collection[str] | None = None,
        middleware: Sequence[EnqueueMiddleware] = (),
        persistence: Persistence | None = None,
    ) -> None:
        self._store = store
        self._tenant = check_name("tenant", tenant)
        self._declared = declared
        self._middleware = middleware
        self._persistence = persistence or Persistence()
        self._ids = IdMaker(lambda: time.time_ns() // 1_000_000, secrets.randbits)
        self._lanes: dict[str, _Lane] = {}
        self._watches: dict[str, Watch] = {}

    async def send(self, call: Call[R], /) -> JobHandle[R]:
        """The job for the call; joins other calls that are on their way at the same time."""
        lane = self._lanes.get(call.queue) or await self._lane(call.queue)
        new = self._new_job(lane, call)
        return self._handle(call, await lane.send(new))

    async def send_many(self, calls: Sequence[Call[R]], /) -> list[JobHandle[R] | PenstockError]:
        """The jobs for the calls in their order; an error stands in the place of a job that is not there."""
        lanes = {name: await self._lane(name) for name in dict.fromkeys(call.queue for call in calls)}
        out: list[JobHandle[R] | PenstockError | None] = [None] * len(calls)
        for name, lane in lanes.items():
            places = [place for place, call in enumerate(calls) if call.queue == name]
            jobs = [self._new_job(lane, calls[place]) for place in places]
            for place, answer in zip(places, await lane.send_many(jobs), strict=True):
                out[place] = self._outcome(calls[place], answer)
        return [each for each in out if each is not None]

    async def job(self, queue: str, job: str, /) -> Job:
        """The record; JobNotFoundError when there is none."""
        ref = QueueRef(self._tenant, queue)
        (record,) = await self._persistence.call(lambda: self._store.get(ref, [job]))
        if record is None:
            raise JobNotFoundError(f"no job {ref}/{job}: pruned, deleted or never there")
        return record

    async def ended(self, queue: str, job: str, timeout: float | None, /) -> Job:
        """The record once the job has ended; ResultTimeoutError after `timeout` seconds."""
        watch = self._watches.get(queue)
        if watch is None:
            ref = QueueRef(self._tenant, queue)
            watch = self._watches[queue] = Watch(self._store, ref, self._persistence)
        return await watch.ended(job, timeout)

    async def cancel(self, queue: str, job: str, /) -> State:
        """Cancelled, or active with the request noted."""
        ref = QueueRef(self._tenant, queue)
        (answer,) = await self._persistence.call(lambda: self._store.cancel(ref, [job]))
        if isinstance(answer, Applied):
            return answer.state
        if answer.state is State.CANCELLED:
            return answer.state
        if answer.why is Refusal.MISSING:
            raise JobNotFoundError(f"no job {ref}/{job}: pruned, deleted or never there")
        raise WrongStateError(f"job {ref}/{job} is {answer.state} and cannot be cancelled")

    async def close(self) -> None:
        """Wait for what is on its way; the store stays open."""
        for lane in self._lanes.values():
            await lane.flush()
        for watch in self._watches.values():
            await watch.close()

    async def _lane(self, name: str) -> "_Lane":
        lane = self._lanes.get(name)
        if lane is None:
            queue = QueueRef(self._tenant, name)
            number = await self._queue_number(queue)
            lane = self._lanes.setdefault(
                name, _Lane(self._store, queue, number, self._persistence, self._middleware)
            )
        return lane

    async def _queue_number(self, queue: QueueRef) -> int:
        check_name("queue", queue.name)
        if self._declared is None or queue.name in self._declared:
            return (await self._persistence.call(lambda: self._store.open_queue(queue))).number
        info = await self._persistence.call(lambda: self._store.queue(queue))
        if info is None:
            stored = [each.queue.name for each in await self._store.queues(self._tenant)]
            raise unknown_queue(queue.name, [*self._declared, *stored])
        return info.number

    def _new_job(self, lane: "_Lane", call: Call[Any]) -> NewJob:
        options = call.options
        return NewJob(
            id=options.id or self._ids.make(lane.number),
            nonce=secrets.token_hex(8),
            task=call.task,
            payload=call.payload,
            priority=options.tier,
            delay_ms=options.delay_ms or 0,
            run_at=options.run_at,
            idempotency_key=options.idempotency_key,
            key=options.key,
            options=options.policy,
        )

    def _outcome(self, call: Call[R], answer: "_Answer") -> JobHandle[R] | PenstockError:
        if isinstance(answer, PenstockError):
            return answer
        try:
            return self._handle(call, answer)
        except PenstockError as error:
            return error

    def _handle(self, call: Call[R], answer: Enqueued | Refused) -> JobHandle[R]:
        if isinstance(answer, Refused):
            if answer.why is Refusal.FULL:
                raise QueueFullError(f"queue {call.queue!r} is full; nothing was enqueued")
            raise DuplicateJobError(
                f"the id {call.options.id!r} is taken in queue {call.queue!r} by another job, {answer.state}"
            )
        if call.options.strict and not answer.same_payload:
            raise IdempotencyConflictError(
                f"the key {call.options.idempotency_key!r} is held in {call.queue!r} by job {answer.id}, "
                "which has another payload"
            )
        return JobHandle(
            self,
            call.queue,
            answer.id,
            call.decode,
            created=answer.created,
            same_payload=answer.same_payload,
        )


def unknown_queue(name: str, known: Collection[str]) -> UnknownQueueError:
    """The error for a queue that is not there, with the names that come near."""
    near = get_close_matches(name, list(dict.fromkeys(known)), n=3)
    hint = f"did you mean {' or '.join(map(repr, near))}?" if near else f"declare it: app.queue({name!r})"
    return UnknownQueueError(f"no queue is named {name!r}: {hint}")


_Answer = Enqueued | Refused | PenstockError


class _Lane:
    """The way into one queue."""

    def __init__(
        self,
        store: Store,
        queue: QueueRef,
        number: int,
        persistence: Persistence,
        middleware: Sequence[EnqueueMiddleware],
    ) -> None:
        self.number = number
        self._store = store
        self._queue = queue
        self._persistence = persistence
        self._middleware = middleware
        self._coalescer: Coalescer[NewJob, Enqueued | Refused] = Coalescer(
            self._enqueue, limit=CHUNK_JOBS, size=_size, size_limit=CHUNK_BYTES
        )

    async def send(self, new: NewJob) -> Enqueued | Refused:
        if not self._middleware:
            return await self._coalescer.do(new)
        call: SendNext = self._coalescer.do
        for each in reversed(self._middleware):
            call = partial(_through, each, self._queue, call)
        return await call(new)

    async def send_many(self, jobs: list[NewJob]) -> Sequence[_Answer]:
        if self._middleware:
            return await asyncio.gather(*(self._sent(new) for new in jobs))
        answers: list[_Answer] = []
        for chunk in _chunks(jobs):
            try:
                answers += await self._enqueue(chunk)
            except StoreError as error:
                # The store stays away: what follows was not sent, and gets the same answer.
                answers += [error] * (len(jobs) - len(answers))
                break
        return answers

    async def flush(self) -> None:
        await self._coalescer.flush()

    async def _sent(self, new: NewJob) -> _Answer:
        try:
            return await self.send(new)
        except PenstockError as error:
            return error
        except Exception as cause:  # noqa: BLE001 (middleware is the user's code)
            stopped = PenstockError(f"middleware stopped the enqueue of {new.task!r}: {cause!r}")
            stopped.__cause__ = cause
            return stopped

    async def _enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued | Refused]:
        # The same ids and nonces each time: what an earlier call brought in is found, not doubled.
        return await self._persistence.call(lambda: self._store.enqueue(self._queue, jobs))


async def _through(
    middleware: EnqueueMiddleware, queue: QueueRef, call_next: SendNext, new: NewJob
) -> Enqueued | Refused:
    return await middleware(new, queue, call_next)


def _size(new: NewJob) -> int:
    return len(new.payload) + JOB_OVERHEAD


def _chunks(jobs: list[NewJob]) -> Iterator[list[NewJob]]:
    chunk: list[NewJob] = []
    size = 0
    for new in jobs:
        if chunk and (len(chunk) == CHUNK_JOBS or size + _size(new) > CHUNK_BYTES):
            yield chunk
            chunk, size = [], 0
        chunk.append(new)
        size += _size(new)
    if chunk:
        yield chunk
