"""Rows as moves of jobs that are in a store: redrive, cancel and delete, harmless when done again."""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

import pyarrow as pa

from penstock.client.retrying import RetryingCaller
from penstock.core.errors import InvalidError
from penstock.core.job import Job, QueueRef
from penstock.core.moves import Move
from penstock.core.names import check_name
from penstock.core.outcomes import Applied, Refusal, Refused
from penstock.core.states import State
from penstock.core.transitions import TABLE
from penstock.spark.options import SourceOptions
from penstock.spark.sink.columns import Columns
from penstock.spark.sink.in_flight import InFlight
from penstock.spark.sink.quarantine import Quarantine
from penstock.spark.sink.queue_catalog import QueueCatalog
from penstock.spark.sink.queue_refs import QueueRefs
from penstock.spark.sink.rate_limiter import RateLimiter
from penstock.spark.sink.values import Flaw, Flaws, values_of
from penstock.spark.sink.write_stats import WriteStats
from penstock.stores.bounds import CHUNK_JOBS
from penstock.stores.protocol import Store

Item = tuple[str, int | None]
"""The id of a job, and the drive that it was in, where the row says so."""


class JobMover:
    """Makes one move with the jobs of a task's rows."""

    def __init__(
        self,
        store: Store,
        options: SourceOptions,
        columns: Columns,
        *,
        pace: RateLimiter,
        stats: WriteStats,
        quarantine: Quarantine,
    ) -> None:
        self._store = store
        self._columns = columns
        self._move = Move(options.operation)
        self._pace = pace
        self._stats = stats
        self._quarantine = quarantine
        self._is_dry = options.dry_run
        self._retrying = RetryingCaller(retry_timeout=options.retry_timeout)
        self._refs = QueueRefs(options)
        self._catalog = QueueCatalog(store, options, self._retrying)
        self._most = min(options.chunk, CHUNK_JOBS, pace.most or CHUNK_JOBS)

    async def take(self, batch: pa.RecordBatch, flight: InFlight) -> None:
        """Move the jobs of a batch. Its last chunks may still be on their way afterwards."""
        flaws: Flaws = {}
        ids = self._listed(batch, self._columns.job, flaws)
        drives = self._listed(batch, self._columns.drive, flaws)
        tenants, queues = (
            self._listed(batch, self._columns.options.get(name), flaws) for name in ("tenant", "queue")
        )
        refs = self._refs.of(tenants, queues, flaws)
        await self._catalog.look_up(refs, flaws)
        items: dict[QueueRef, list[Item]] = defaultdict(list)
        for at, (ref, job, drive) in enumerate(zip(refs, ids, drives, strict=True)):
            if at not in flaws:
                try:
                    items[ref].append((check_name("job", job), drive))
                except InvalidError as error:
                    flaws[at] = Flaw(error.field, str(error))
        for at, flaw in sorted(flaws.items()):
            self._stats.bad[flaw.field] = self._stats.bad.get(flaw.field, 0) + 1
            self._quarantine.add(batch, at, flaw)
        for ref, of_queue in items.items():
            for start in range(0, len(of_queue), self._most):
                chunk = of_queue[start : start + self._most]
                await self._pace.wait(len(chunk))
                await flight.start(self._apply(ref, chunk))

    def _listed(self, batch: pa.RecordBatch, place: int | None, flaws: Flaws) -> list[Any]:
        if place is None:
            return [None] * batch.num_rows
        return values_of(self._columns.names[place], batch.column(place), flaws)

    async def _apply(self, queue: QueueRef, items: Sequence[Item]) -> None:
        has_drives = any(drive is not None for _, drive in items)
        if self._is_dry or has_drives:
            ids = [job for job, _ in items]
            found = await self._retrying.call(partial(self._store.reads.get, queue, ids))
            if self._is_dry:
                for (_, drive), job in zip(items, found, strict=True):
                    self._count(self._would(job, drive))
                return
            # A job that was redriven since the row was read may have ended again: it has had its new life.
            again = [_is_later(job, drive) for (_, drive), job in zip(items, found, strict=True)]
            self._stats.already += sum(again)
            items = [item for item, is_later in zip(items, again, strict=True) if not is_later]
        call: Callable[[QueueRef, Sequence[str]], Awaitable[list[Applied | Refused]]]
        call = getattr(self._store.moves, self._move)
        for answer in await self._retrying.call(partial(call, queue, [job for job, _ in items])):
            self._count(answer)

    def _would(self, job: Job | None, drive: int | None) -> Applied | Refused | None:
        """What the store would answer; None where it would not be asked."""
        if job is None:
            return Refused(Refusal.MISSING)
        if _is_later(job, drive):
            return None
        is_allowed = job.state in TABLE[self._move].sources
        return Applied(job.state) if is_allowed else Refused(Refusal.STATE, job.state)

    def _count(self, answer: Applied | Refused | None) -> None:
        if isinstance(answer, Applied):
            self._stats.applied += 1
        elif answer is None or self._is_already_done(answer):
            self._stats.already += 1
        else:
            what = answer.state or answer.why
            self._stats.refused[what] = self._stats.refused.get(what, 0) + 1

    def _is_already_done(self, refused: Refused) -> bool:
        """True when the job is what the move would make of it."""
        match self._move:
            case Move.DELETE:
                return refused.why is Refusal.MISSING
            case Move.CANCEL:
                return refused.state is State.CANCELLED
            case _:
                return refused.state is not None and refused.state.is_live


def _is_later(job: Job | None, drive: int | None) -> bool:
    return job is not None and drive is not None and job.drive > drive
