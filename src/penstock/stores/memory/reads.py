"""Looking at the memory store without touching it."""

from collections.abc import Sequence

from msgspec.structs import replace

from penstock.core.job import ExpiredLease, Job, QueueRef
from penstock.core.states import State
from penstock.stores.absent import answers_absent
from penstock.stores.bounds import RECOVER_LIMIT
from penstock.stores.memory.backend import Backend
from penstock.stores.memory.claims import expired_leases
from penstock.stores.values import (
    HeldLease,
    KeyHolder,
    Page,
    Query,
)


class MemoryReads:
    """Looks at the jobs of a queue."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def get(self, queue: QueueRef, ids: Sequence[str]) -> list[Job | None]:
        with self._backend.lock:
            ledger = self._backend.ledgers.get(queue)
            return [ledger.jobs.get(each) if ledger else None for each in ids]

    async def find(self, queue: QueueRef, query: Query) -> Page:
        with self._backend.lock:
            ledger = self._backend.ledgers.get(queue)
            jobs = list(ledger.jobs.values()) if ledger else []

        def age(job: Job) -> tuple[int, str]:
            return ((job.ended_at or 0) if query.is_by_end else job.enqueued_at, job.id)

        found = sorted(
            (
                job
                for job in jobs
                if (not query.states or job.state in query.states)
                and (query.task is None or job.task == query.task)
                and (query.key is None or job.key == query.key)
                and (query.since is None or age(job)[0] >= query.since)
            ),
            key=age,
            reverse=not query.oldest_first,
        )
        if query.after is not None:
            at, _, last = query.after.partition("/")
            end = (int(at), last)
            found = [job for job in found if (age(job) > end if query.oldest_first else age(job) < end)]
        page = found[: query.limit]
        more = len(found) > len(page)
        following = f"{age(page[-1])[0]}/{page[-1].id}" if more and page else None
        if not query.payloads:
            page = [replace(job, payload=b"") for job in page]
        if not query.results:
            page = [replace(job, result=None) for job in page]
        return Page(page, following)

    async def key_holders(self, queue: QueueRef, keys: Sequence[str]) -> list[KeyHolder | None]:
        with self._backend.lock:
            ledger = self._backend.ledgers.get(queue)
            if ledger is None:
                return [None] * len(keys)
            now, out = self._backend.now(), list[KeyHolder | None]()
            for key in keys:
                held = ledger.key_holder(key, now)
                # Once the record is gone the id may be another job's.
                state = ledger.jobs[held.job].state if held is not None and held.until is None else None
                out.append(None if held is None else KeyHolder(held.job, state, held.digest))
            return out

    async def counts(self, queue: QueueRef) -> dict[State, int]:
        with self._backend.lock:
            ledger = self._backend.ledgers.get(queue)
            return dict(ledger.counts) if ledger else dict.fromkeys(State, 0)

    async def oldest(self, queue: QueueRef) -> int | None:
        with self._backend.lock:
            ledger = self._backend.ledgers.get(queue)
            jobs = ledger.jobs.values() if ledger else ()
            return min((job.enqueued_at for job in jobs if job.state is State.PENDING), default=None)

    async def ahead(self, queue: QueueRef, job: str) -> int:
        with self._backend.lock:
            ledger = self._backend.ledgers.get(queue)
            if ledger is None or job not in ledger.jobs:
                return 0

            def order(each: Job) -> tuple[int, int]:
                return -each.priority, ledger.places[each.id]

            mine = ledger.jobs[job]
            waiting = (each for each in ledger.jobs.values() if each.state is State.PENDING)
            if ledger.declared.mode.has_keys:
                places = (ledger.places[each.id] for each in waiting if each.key == mine.key)
                return sum(place < ledger.places[job] for place in places)
            return sum(order(each) < order(mine) for each in waiting)

    @answers_absent
    async def expired(self, queue: QueueRef, limit: int = RECOVER_LIMIT) -> list[ExpiredLease]:
        with self._backend.lock:
            return expired_leases(self._backend.existing(queue), self._backend.now(), limit)

    async def leases(self, queue: QueueRef, worker: str | None = None) -> list[HeldLease]:
        with self._backend.lock:
            ledger = self._backend.ledgers.get(queue)
            return [
                HeldLease(job.id, job.token or "", job.worker or "", job.deadline or 0)
                for job in (ledger.jobs.values() if ledger else ())
                if job.state is State.ACTIVE and worker in (None, job.worker)
            ]
