"""Rows into a store as jobs: a chunk is one atomic step, and the same row again finds its job there."""

import asyncio
import random
import time
from collections import defaultdict
from collections.abc import Sequence
from functools import partial

import pyarrow as pa

from penstock.bloom.filters import Filters
from penstock.bloom.rotating import IDEMPOTENCY
from penstock.client.known_keys import KnownKeys
from penstock.client.producer import chunks
from penstock.client.retrying import PAUSE, RetryingCaller
from penstock.core.errors import QueueFullError
from penstock.core.job import NewJob, QueueRef
from penstock.core.outcomes import Enqueued, Refusal, Refused
from penstock.spark.options import SourceOptions
from penstock.spark.sink.in_flight import InFlight
from penstock.spark.sink.quarantine import Quarantine
from penstock.spark.sink.queue_catalog import QueueCatalog
from penstock.spark.sink.rate_limiter import RateLimiter
from penstock.spark.sink.rows import RowBatch, Rows
from penstock.spark.sink.values import Flaw
from penstock.spark.sink.write_stats import WriteStats
from penstock.stores.bounds import CHUNK_JOBS
from penstock.stores.protocol import Store


class Enqueueing:
    """Takes the rows of one task into a store."""

    def __init__(
        self,
        store: Store,
        options: SourceOptions,
        rows: Rows,
        *,
        pace: RateLimiter,
        stats: WriteStats,
        quarantine: Quarantine,
    ) -> None:
        self._store = store
        self._rows = rows
        self._pace = pace
        self._stats = stats
        self._quarantine = quarantine
        self._is_dry = options.dry_run
        self._retry_timeout = options.retry_timeout
        self._retrying = RetryingCaller(retry_timeout=options.retry_timeout)
        self._catalog = QueueCatalog(store, options, self._retrying)
        keys = Filters(idempotency=IDEMPOTENCY).idempotency if options.key_filter else None
        self._known_keys = None if keys is None else KnownKeys(store, keys, self._retrying)
        self._most = min(options.chunk, CHUNK_JOBS, pace.most or CHUNK_JOBS)

    async def take(self, batch: pa.RecordBatch, flight: InFlight) -> None:
        """Take a batch in. Its last chunks may still be on their way afterwards."""
        read = self._rows.read(batch)
        await self._catalog.look_up(read.refs, read.flaws)
        jobs: dict[QueueRef, list[NewJob]] = defaultdict(list)
        places: dict[QueueRef, list[int]] = defaultdict(list)
        for at, queue, new in read.jobs(self._catalog.known):
            jobs[queue].append(new)
            places[queue].append(at)
        for at, flaw in sorted(read.flaws.items()):
            self._set_aside(read, at, flaw)
        for queue, all_of_it in jobs.items():
            start = 0
            for chunk in chunks(all_of_it, self._most):
                rows = places[queue][start : start + len(chunk)]
                start += len(chunk)
                await self._pace.wait(len(chunk))
                await flight.start(self._enqueue(queue, chunk, read, rows))

    async def _enqueue(
        self, queue: QueueRef, jobs: Sequence[NewJob], read: RowBatch, places: Sequence[int]
    ) -> None:
        """Put the chunk into the store; a full queue is waited for, for up to `retry_timeout` seconds."""
        if self._is_dry:
            self._stats.applied += len(jobs)
            return
        tried, end = 0, time.monotonic() + self._retry_timeout
        while True:
            # The same keys each time: what an earlier call brought in is found, not doubled.
            answers = await self._send(queue, jobs)
            left = [
                (new, at)
                for new, at, answer in zip(jobs, places, answers, strict=True)
                if not self._is_settled(queue, new, read, at, answer)
            ]
            if not left:
                return
            now = time.monotonic()
            if len(left) < len(jobs):
                tried, end = 0, now + self._retry_timeout
            elif now >= end:
                raise QueueFullError(
                    f"queue {str(queue)!r} was full for {self._retry_timeout:g} s. What was enqueued stays: "
                    f"with writeId={self._rows.write_id} a second run enqueues the rest"
                )
            jobs, places = [new for new, _ in left], [at for _, at in left]
            tried += 1
            await asyncio.sleep(PAUSE.after(tried, random.uniform))

    async def _send(self, queue: QueueRef, jobs: Sequence[NewJob]) -> list[Enqueued | Refused]:
        if self._known_keys is not None:
            return await self._known_keys.enqueue(queue, jobs)
        return await self._retrying.call(partial(self._store.moves.enqueue, queue, jobs))

    def _is_settled(
        self, queue: QueueRef, new: NewJob, read: RowBatch, at: int, answer: Enqueued | Refused
    ) -> bool:
        """Count the answer; False where the queue was full."""
        match answer:
            case Enqueued(created=True):
                self._stats.applied += 1
            case Enqueued(same_payload=True):
                self._stats.already += 1
            case Enqueued(id=job):
                held = f"the key {new.idempotency_key!r} is held in queue {str(queue)!r} by job {job}"
                self._set_aside(read, at, Flaw("_idempotency_key", f"{held}, which has other work"))
            case Refused(why=Refusal.FULL):
                return False
            case Refused(why=Refusal.KEYLESS):
                reason = f"_key: found None, wanted a key: the jobs of queue {str(queue)!r} need one"
                self._set_aside(read, at, Flaw("_key", reason))
            case Refused():
                reason = f"_id: the id {new.id!r} is taken in queue {str(queue)!r} by another job"
                self._set_aside(read, at, Flaw("_id", reason))
        return True

    def _set_aside(self, read: RowBatch, at: int, flaw: Flaw) -> None:
        self._stats.bad[flaw.field] = self._stats.bad.get(flaw.field, 0) + 1
        self._quarantine.add(read.batch, at, flaw)
