"""The client: brings calls into the store and looks after the jobs they become."""

import asyncio
import secrets
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Any, Final, TypeVar

from penstock.bloom.filters import Filters
from penstock.client.caller_transaction import PendingEnqueue, PendingEnqueues, single_handle, transactional
from penstock.client.declaring import declare
from penstock.client.flow_plan import FlowPlan, plan
from penstock.client.jobs import check_mode, new_job
from penstock.client.known_keys import KnownKeys
from penstock.client.producer import Answer, QueueProducer, chunks
from penstock.client.queue_administration import QueueAdministration
from penstock.client.relay import relay
from penstock.client.retrying import RetryingCaller
from penstock.client.waiting import LOOK_LIMIT, EndingWatcher
from penstock.core.errors import (
    ConfigError,
    DeclarationError,
    DuplicateJobError,
    IdempotencyConflictError,
    JobNotFoundError,
    OptionError,
    PenstockError,
    QueueFullError,
    StoreError,
    UnknownQueueError,
    WrongStateError,
)
from penstock.core.flows import Child, JobRef
from penstock.core.ids import IdMaker
from penstock.core.job import DEFAULT_TENANT, Job, NewJob, QueueRef
from penstock.core.limits import Declaration
from penstock.core.names import check_name
from penstock.core.outcomes import Applied, Enqueued, Refusal, Refused
from penstock.core.states import State
from penstock.stores.bounds import CHUNK_JOBS, RELAY_LIMIT
from penstock.stores.protocol import Store
from penstock.stores.values import QueueInfo
from penstock.tasks.call import Call, check_own
from penstock.tasks.flow import Flow, FlowNode
from penstock.tasks.flow_handle import FlowHandle
from penstock.tasks.handle import JobHandle
from penstock.tasks.middleware import EnqueueMiddleware

R = TypeVar("R")
_QUEUE: Final = attrgetter("queue")
CARRY_ROUNDS: Final = 100
"""Batches of relay entries that a producer carries itself: more than the largest flow has."""

STORELESS: Final = (
    "a handler in a process has no store: let it make jobs with ctx.spawn(…), or return what an inline task "
    "enqueues"
)
"""What a handler in a process is told that asks the app for its store, whichever way."""


class Client:
    """Enqueues into one open store, on one event loop.

    `declared` names queues that may be made when they are new, with what is said of their mode and limits;
    None allows any name. Calls that meet a store which cannot be reached are repeated with the same job ids:
    none is enqueued twice. `filters` spare calls and payloads.

    An app has its client from the start, because tasks are made before the app is opened; `open` gives it the
    store. `owner` is the client whose tasks this one enqueues too, where that is another one.
    """

    def __init__(
        self,
        store: Store | None = None,
        *,
        owner: "Client | None" = None,
        tenant: str = DEFAULT_TENANT,
        declared: Mapping[str, Declaration | None] | Collection[str] | None = None,
        middleware: Sequence[EnqueueMiddleware] = (),
        retrying: RetryingCaller | None = None,
        filters: Filters | None = None,
    ) -> None:
        self._opened = store
        self._owner = owner or self
        self.loop: asyncio.AbstractEventLoop | None = None
        """The event loop that the app is open in; None for a client that was made with its store."""
        self.is_storeless = False
        """True in a process that only executes handlers."""
        self._tenant = check_name("tenant", tenant)
        self._declared = declared
        self._middleware = middleware
        self._retrying = retrying or RetryingCaller()
        self._filters = filters or Filters()
        self._ids = IdMaker(lambda: time.time_ns() // 1_000_000, secrets.randbits)
        self._producers: dict[str, QueueProducer] = {}
        self._watches: dict[str, EndingWatcher] = {}
        self._is_declared = False

    def open(self, store: Store) -> None:
        """Use a store that is open."""
        self._producers, self._watches, self._is_declared = {}, {}, False
        self._opened = store

    def forget_store(self) -> None:
        """Have no store: it is closed, or belongs to another process."""
        self._opened = None

    @property
    def is_open(self) -> bool:
        """True while it has a store."""
        return self._opened is not None

    @property
    def _store(self) -> Store:
        if self._opened is None:
            if self.is_storeless:
                raise ConfigError(STORELESS)
            raise ConfigError("the app is not open: do this inside `async with app:`")
        if self.loop is not None and self.loop is not asyncio.get_running_loop():
            raise ConfigError("the app was opened in another event loop: from other threads use app.blocking")
        return self._opened

    def check_own(self, calls: Iterable[Call[Any]]) -> None:
        """ConfigError for a call of a task that another app declared: it would go into this app's store."""
        check_own(self._owner, calls)

    def check_blocking(self) -> None:
        """ConfigError where a wait would stop the event loop that the app is open in."""
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            return
        if self.is_open and self.loop is running:
            raise ConfigError(
                "app.blocking would wait in the event loop that the app is open in, and stop it: "
                "await handle.result() there, or wait in a thread with asyncio.to_thread(…)"
            )

    async def send(self, call: Call[R], /) -> JobHandle[R]:
        """The job for the call; joins other calls that are on their way at the same time."""
        self.check_own((call,))
        producer = await self._fitting(call)
        new = self._new_job(producer, call)
        return self._handle(call, await producer.send(new))

    async def send_in(self, connection: object, call: Call[R], /) -> JobHandle[R]:
        """The job for the call, as part of the transaction that the connection is in."""
        return single_handle(await (await self.entries([call])).enqueue(connection, blocking=False))

    async def send_many_in(
        self, connection: object, calls: Sequence[Call[R]], /
    ) -> list[JobHandle[R] | PenstockError]:
        """The same for many calls, in their order; an error stands where the store refused one."""
        return await (await self.entries(calls)).enqueue(connection, blocking=False)

    async def entries(self, calls: Sequence[Call[R]], /) -> PendingEnqueues[R]:
        """The jobs for the calls, and their queues opened: the caller's transaction could be rolled back."""
        self.check_own(calls)
        store = transactional(self._store)
        if not self._is_declared:
            # A declaration that is news waits for all who write jobs: later, that could be this caller.
            for name in [each for each in self._declared or () if self._declaration(each) is not None]:
                with suppress(DeclarationError):
                    await self._producer(name)
            self._is_declared = True
        entries: list[tuple[Sequence[int], PendingEnqueue]] = []
        for name in dict.fromkeys(call.queue for call in calls):
            if not store.is_opened(QueueRef(self._tenant, name)):
                self._producers.pop(name, None)
            places = [place for place, call in enumerate(calls) if call.queue == name]
            producer = await self._producer(name)
            for place in places:
                await self._fitting(calls[place])
            jobs = [self._new_job(producer, calls[place]) for place in places]
            wrapped = producer.wrapped if self._middleware else None
            for chunk in chunks(jobs):
                entries.append((places[: len(chunk)], PendingEnqueue(store, producer.info, chunk, wrapped)))
                places = places[len(chunk) :]
        return PendingEnqueues(entries, lambda place, answer: self._outcome(calls[place], answer))

    async def send_flow(self, flow: Flow, /) -> FlowHandle:
        """The flow, taken in as a whole, or not at all: QueueFullError when its last job finds no room."""
        flow.check()
        self.check_own(node.call for node in flow.nodes)
        for node in flow.nodes:
            await self._fitting(node.call)
        planned = plan(flow, lambda queue: self._ids.make(self._producers[queue].info.number))
        jobs = await self._through_middleware(planned)
        home, spawns = QueueRef(self._tenant, planned.home), planned.spawns(jobs)
        # The anchor again with the same nonce: its spawns are not written twice either.
        (answer,) = await self._retrying.call(
            lambda: self._store.moves.enqueue(
                home, [jobs[planned.anchor]], spawns, self._producers[home.name].info.mode
            )
        )
        handles: dict[FlowNode[Any], JobHandle[Any]] = {
            node: JobHandle(self, node.call.queue, jobs[node].id, node.call.decode, created=True)
            for node in flow.nodes
        }
        handles[planned.anchor] = self._handle(planned.anchor.call, answer, flow.name)
        with suppress(StoreError):
            # All of it is in the store: whoever ticks for the queue carries on where this stops.
            await self.carry(planned.home)
        return FlowHandle(self, planned.home, handles, planned.refs)

    async def carry(self, queue: str, /) -> None:
        """Bring to other queues what this one has for them now."""
        ref = QueueRef(self._tenant, queue)
        for _ in range(CARRY_ROUNDS):
            if await relay(self._store, ref) < RELAY_LIMIT:
                return

    async def jobs(self, refs: Sequence[JobRef], /) -> list[Job | None]:
        """The records, in their order; None where there is none."""
        found: dict[JobRef, Job | None] = {}
        for queue in dict.fromkeys(ref.queue for ref in refs):
            here = [ref for ref in refs if ref.queue == queue]
            for start in range(0, len(here), LOOK_LIMIT):
                some = here[start : start + LOOK_LIMIT]
                found |= zip(some, await self._records(queue, [ref.id for ref in some]), strict=True)
        return [found[ref] for ref in refs]

    async def children(self, ref: JobRef, /, *, results: bool = True) -> list[Child]:
        """What a job waited or waits for."""
        queue = QueueRef(self._tenant, ref.queue)
        return await self._retrying.call(lambda: self._store.flows.children(queue, ref.id, results=results))

    async def cancel_all(self, refs: Sequence[JobRef], /) -> int:
        """Cancel what still lives of these, in their order; how many did."""
        cancelled = 0
        for queue, run in groupby(refs, key=lambda ref: ref.queue):
            target, ids = QueueRef(self._tenant, queue), [ref.id for ref in run]
            for start in range(0, len(ids), CHUNK_JOBS):
                call = partial(self._store.moves.cancel, target, ids[start : start + CHUNK_JOBS])
                answers = await self._retrying.call(call)
                cancelled += sum(isinstance(answer, Applied) for answer in answers)
        return cancelled

    async def prepare(self, queues: Collection[str] | None = None) -> None:
        """Hold what the app says of these queues, or all, against what is stored, as workers do.

        DeclarationError on a mismatch.
        """
        for name in list((self._declared or ()) if queues is None else queues):
            if self._declaration(name) is not None:
                info = await self._info(QueueRef(self._tenant, name), is_producer=False)
                if name in self._producers:
                    self._producers[name].info = info

    async def upkeep(self, queue: str) -> QueueAdministration:
        """What an owner does to a queue as a whole."""
        producer = await self._producer(queue)
        return QueueAdministration(self._store, producer.info.queue, self._retrying, self._filters.cleanup)

    async def delete_queue(self, queue: str, *, purge: bool = False) -> int:
        """Delete a queue that has nothing in it; with `purge` its ended jobs first, and how many those were.

        UnknownQueueError when there is no such queue, QueueNotEmptyError when something is still there.
        """
        ref = QueueRef(self._tenant, check_name("queue", queue))
        upkeep = QueueAdministration(self._store, ref, self._retrying, self._filters.cleanup)
        purged = await upkeep.delete(purge=purge)
        self.forget(queue)
        return purged

    def forget(self, queue: str) -> None:
        """Look at a queue again before the next job: it was deleted."""
        self._producers.pop(queue, None)

    async def send_many(self, calls: Sequence[Call[R]], /) -> list[JobHandle[R] | PenstockError]:
        """The jobs for the calls in their order; an error stands in the place of a job that is not there."""
        self.check_own(calls)
        producers = {name: await self._producer(name) for name in dict.fromkeys(map(_QUEUE, calls))}
        keyed = {name for name, producer in producers.items() if producer.info.mode.has_keys}
        for call in calls if keyed else ():
            await self._fitting(call)
        out: list[JobHandle[R] | PenstockError | None] = [None] * len(calls)
        by_queue: dict[str, list[int]] = {name: [] for name in producers}
        for place, call in enumerate(calls):
            by_queue[call.queue].append(place)
        for name, producer in producers.items():
            places = by_queue[name]
            number, rest = producer.info.number, iter(places)
            jobs = (new_job(calls[place], self._ids.make(number), self._ids.nonce()) for place in places)
            async for answers in producer.send_many(jobs, len(places)):
                for answer in answers:
                    place = next(rest)
                    out[place] = self._outcome(calls[place], answer)
        return [each for each in out if each is not None]

    async def job(self, queue: str, job: str, /) -> Job:
        """The record; JobNotFoundError when there is none."""
        (record,) = await self._records(queue, [job])
        if record is None:
            ref = QueueRef(self._tenant, queue)
            raise JobNotFoundError(f"no job {ref}/{job}: pruned, deleted or never there")
        return record

    async def _records(self, queue: str, ids: Sequence[str]) -> list[Job | None]:
        ref = QueueRef(self._tenant, queue)
        return await self._retrying.call(lambda: self._store.reads.get(ref, ids))

    async def ended(self, queue: str, job: str, timeout: float | None, /) -> Job:
        """The record once the job has ended; ResultTimeoutError after `timeout` seconds."""
        watch = self._watches.get(queue)
        if watch is None:
            ref = QueueRef(self._tenant, queue)
            watch = self._watches[queue] = EndingWatcher(self._store, ref, self._retrying)
        return await watch.ended(job, timeout)

    async def cancel(self, queue: str, job: str, /) -> State:
        """Cancelled, or active with the request noted."""
        ref = QueueRef(self._tenant, queue)
        (answer,) = await self._retrying.call(lambda: self._store.moves.cancel(ref, [job]))
        if isinstance(answer, Applied):
            return answer.state
        if answer.state is State.CANCELLED:
            return answer.state
        if answer.why is Refusal.MISSING:
            raise JobNotFoundError(f"no job {ref}/{job}: pruned, deleted or never there")
        raise WrongStateError(f"job {ref}/{job} is {answer.state} and cannot be cancelled")

    async def close(self) -> None:
        """Wait for what is on its way; the store stays open."""
        for producer in self._producers.values():
            await producer.flush()
        for watch in self._watches.values():
            await watch.close()

    async def _producer(self, name: str) -> QueueProducer:
        store, producer = self._store, self._producers.get(name)
        if producer is None:
            look = partial(self._info, QueueRef(self._tenant, name))
            info, filter_ = await look(), self._filters.idempotency
            known = None if filter_ is None else KnownKeys(store, filter_, self._retrying)
            producer = self._producers.setdefault(
                name, QueueProducer(store, info, self._retrying, self._middleware, look, known)
            )
        return producer

    async def _fitting(self, call: Call[Any]) -> QueueProducer:
        """The way into the call's queue; OptionError when the call does not go with the queue's mode."""
        producer = await self._producer(call.queue)
        try:
            check_mode(call, producer.info.mode)
        except OptionError:
            # The queue may be in another mode since this client looked at it.
            await producer.look_again()
            check_mode(call, producer.info.mode)
        return producer

    async def _info(self, queue: QueueRef, *, is_producer: bool = True) -> QueueInfo:
        check_name("queue", queue.name)
        if self._declared is None or queue.name in self._declared:
            declaration = self._declaration(queue.name)
            return await declare(self._store, queue, declaration, self._retrying, is_producer=is_producer)
        info = await self._retrying.call(lambda: self._store.queues.find_queue(queue))
        if info is None:
            stored = [each.queue.name for each in await self._store.queues.list_queues(self._tenant)]
            raise unknown_queue(queue.name, [*self._declared, *stored])
        return info

    def _declaration(self, name: str) -> Declaration | None:
        return self._declared.get(name) if isinstance(self._declared, Mapping) else None

    def _new_job(self, producer: QueueProducer, call: Call[Any]) -> NewJob:
        return new_job(call, self._ids.make(producer.info.number), self._ids.nonce())

    async def _through_middleware(self, planned: FlowPlan) -> dict[FlowNode[Any], NewJob]:
        """The flow's jobs as the middleware lets them through."""
        jobs: dict[FlowNode[Any], NewJob] = {}
        for node, new in planned.jobs.items():
            jobs[node] = await self._producers[node.call.queue].shaped(new) if self._middleware else new
        return jobs

    def _outcome(self, call: Call[R], answer: Answer) -> JobHandle[R] | PenstockError:
        if isinstance(answer, PenstockError):
            return answer
        try:
            return self._handle(call, answer)
        except PenstockError as error:
            return error

    def _handle(self, call: Call[R], answer: Enqueued | Refused, chosen: str | None = None) -> JobHandle[R]:
        if isinstance(answer, Refused):
            if answer.why is Refusal.FULL:
                raise QueueFullError(f"queue {call.queue!r} is full; the job was not enqueued")
            if answer.why is Refusal.KEYLESS:
                # It was declared anew since this client looked: the next call looks again.
                self._producers.pop(call.queue, None)
                raise OptionError("key", None, f"a key: the jobs of queue {call.queue!r} need one")
            if answer.why is Refusal.MODE:
                self._producers.pop(call.queue, None)
                if call.options.priority is not None:
                    wanted = f"none: in queue {call.queue!r}, whose mode has changed, keys take turns"
                    raise OptionError("priority", call.options.priority, wanted)
                raise DeclarationError(
                    f"queue {call.queue!r} is in another mode since this client looked: enqueue again"
                )
            raise DuplicateJobError(
                f"the id {call.options.id or chosen!r} is taken in queue {call.queue!r} by another job, "
                f"{answer.state}"
            )
        if call.options.strict and call.options.kind is None and not answer.same_payload:
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
            replaced=answer.replaced,
        )


def unknown_queue(name: str, known: Collection[str]) -> UnknownQueueError:
    """The error for a queue that is not there, with the names that come near."""
    near = get_close_matches(name, list(dict.fromkeys(known)), n=3)
    hint = f"did you mean {' or '.join(map(repr, near))}?" if near else f"declare it: app.queue({name!r})"
    return UnknownQueueError(f"no queue is named {name!r}: {hint}")
