"""Children of running jobs: looked at, and added under the lease."""

import asyncio
import hashlib
import secrets
import time
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from typing import Any, TypeVar, cast

from msgspec.structs import replace

from penstock.client.jobs import check_mode, new_job
from penstock.client.relay import relay
from penstock.client.retrying import RetryingCaller
from penstock.core.errors import ConfigError, OptionError, StaleLeaseError, StoreError
from penstock.core.headers import trace_context
from penstock.core.ids import IdMaker
from penstock.core.job import Claimed, QueueRef
from penstock.core.moves import Beat
from penstock.core.outcomes import Refused
from penstock.stores.protocol import Store
from penstock.stores.values import QueueInfo, Spawn
from penstock.tasks.call import Call, check_own
from penstock.tasks.child_jobs import ChildJob
from penstock.tasks.handle import JobHandle, JobReader
from penstock.tasks.registry import Registry
from penstock.tasks.signals import Cancel

T = TypeVar("T")


class StoreChildJobs:
    """Answers for the jobs that one worker runs, on its event loop."""

    def __init__(
        self, store: Store, queue: QueueRef, registry: Registry, retrying: RetryingCaller | None = None
    ) -> None:
        self._store = store
        self._queue = queue
        self._registry = registry
        self._retrying = retrying or RetryingCaller()
        self._loop = asyncio.get_running_loop()
        self._ids = IdMaker(lambda: time.time_ns() // 1_000_000, secrets.randbits)
        self._infos: dict[str, QueueInfo] = {}

    async def children(self, job: Claimed, /) -> list[ChildJob]:
        """The job's children, in the order they were named."""
        found = await self._retrying.call(lambda: self._store.flows.children(self._queue, job.id))
        return [ChildJob.of(child) for child in found]

    async def spawn(self, job: Claimed, calls: Sequence[Call[Any]], /) -> list[JobHandle[Any]]:
        """Jobs that whoever waits for this one waits for, too; StaleLeaseError once the lease is gone.

        Cancel once someone asked for this job to be cancelled: what it spawned would outlive that.
        ConfigError for tasks of other apps than the one that runs the job.
        """
        if (task := self._registry.get(job.task)) is not None:
            check_own(task.sender, calls)
        (record,) = await self._retrying.call(lambda: self._store.reads.get(self._queue, [job.id]))
        if record is not None and record.cancel_requested:
            raise Cancel(f"job {self._queue}/{job.id} is to be cancelled: nothing was spawned")
        spawns = [await self._spawn(job, call) for call in calls]
        lease = Beat(job.id, job.token)
        # Repeated with the same ids: an entry that is carried over twice makes one job.
        answer = await self._retrying.call(lambda: self._store.flows.spawn(self._queue, lease, spawns))
        if isinstance(answer, Refused):
            raise StaleLeaseError(f"job {self._queue}/{job.id} is no longer held: nothing was spawned")
        with suppress(StoreError):
            # They are in the store; what does not go over now is carried by the next tick.
            await relay(self._store, self._queue)
        return [
            JobHandle(cast(JobReader, call.sender), call.queue, each.job.id, call.decode, created=True)
            for call, each in zip(calls, spawns, strict=True)
        ]

    def wait(self, work: Coroutine[Any, Any, T], /) -> T:
        """The answer of a coroutine, from a handler's thread."""
        with suppress(RuntimeError):
            if asyncio.get_running_loop() is self._loop:
                work.close()
                raise ConfigError("ctx.blocking is for handlers that are plain functions: await here")
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _spawn(self, job: Claimed, call: Call[Any]) -> Spawn:
        options = call.options
        if options.idempotency_key is not None or options.kind is not None:
            name = "idempotency_key" if options.kind is None else str(options.kind.rule)
            raise OptionError(name, call.options.unique_key, "none: a spawned job is told apart by its id")
        info = await self._info(call.queue)
        check_mode(call, info.mode)
        # With an id of its own it is the same job each time its parent runs.
        nonce = None if options.id is None else _nonce(self._queue, job.id, options.id)
        new = new_job(call, self._ids.make(info.number), nonce)
        headers = trace_context(job.headers) | (options.headers or {})
        return Spawn(call.queue, replace(new, parents=job.parents, headers=headers or None))

    async def _info(self, name: str) -> QueueInfo:
        if name not in self._infos:
            queue = QueueRef(self._queue.tenant, name)
            self._infos[name] = await self._retrying.call(lambda: self._store.queues.open_queue(queue))
        return self._infos[name]


def _nonce(queue: QueueRef, parent: str, child: str) -> str:
    return hashlib.blake2b(f"{queue.name}/{parent}/{child}".encode(), digest_size=8).hexdigest()
