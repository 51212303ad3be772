"""Answers bounded by bytes, and long lists given to the store in portions.

A store is asked for PORTION records at a time, which can have a payload or result each, until an answer has
`Limits.answer_bytes` or more. Every answer has at least one record, so that a client reaches the end.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec

from penstock.core.errors import PenstockError
from penstock.core.flows import Child
from penstock.core.job import Claimed, Job, QueueRef
from penstock.core.outcomes import Claims
from penstock.stores.bounds import CHUNK_BYTES, CHUNK_JOBS, ENTRY_LIMIT, RELAY_LIMIT
from penstock.stores.claim_limits import CLAIM_LIMITS, ClaimLimits
from penstock.stores.portions import PORTION
from penstock.stores.protocol import Flows, KeyValue, Moves, Reads
from penstock.stores.values import Adoption, KeyValueEntry, Page, Query, Relay

T = TypeVar("T")
LARGEST_PORTION: Final = 256
"""The portion of records that were small so far."""
SLIM_PORTION: Final = 500
"""Records without payload and result that are read in one call."""
MOST_RECORDS: Final = 5_000
"""Records in one answer, however small: to encode more would hold up others."""
LISTS: Final[Mapping[str, str]] = {
    "enqueue": "jobs",
    "heartbeat": "beats",
    "progress": "reports",
    "settle": "settlements",
    "expire": "expiries",
    "cancel": "ids",
    "redrive": "ids",
    "delete": "ids",
    "child_ended": "endings",
    "adopt": "adoptions",
}
"""Calls that are answered item by item, and the list of their items."""


async def in_portions(
    call: str, given: Mapping[str, Any], work: Callable[[Mapping[str, Any]], Awaitable[Any]]
) -> Any:
    """The answer of a call to the store, to which a long list goes in portions: others have their turn."""
    name = LISTS.get(call)
    if name is None or given.get("spawns"):
        return await work(given)
    portions = _portions(given[name])
    if len(portions) == 1:
        return await work(given)
    answers: list[Any] = []
    for portion in portions:
        answers += await work({**given, name: portion})
    return answers


async def claim(
    store: Moves,
    queue: QueueRef,
    *,
    worker: str,
    limit: int,
    lease_ms: int,
    floor_us: int = 0,
    limits: ClaimLimits = CLAIM_LIMITS,
    most_bytes: int,
) -> Claims:
    """Lease up to `limit` jobs, fewer where their payloads are large: `is_more` says so."""
    jobs: list[Claimed] = []
    first: Claims | None = None
    size = 0
    while True:
        portion = min(PORTION, limit - len(jobs))
        try:
            claims = await store.claim(
                queue, worker=worker, limit=portion, lease_ms=lease_ms, floor_us=floor_us, limits=limits
            )
        except (PenstockError, OSError):
            if first is None:
                raise
            # The jobs that are leased have to reach their worker.
            return msgspec.structs.replace(first, jobs=jobs, is_more=True)
        jobs += claims.jobs
        size += sum(len(job.payload) for job in claims.jobs)
        # Leases that ran out are named again in each claim until somebody deals with them.
        first = first or claims
        is_over = size >= most_bytes and len(jobs) < limit
        if is_over or len(claims.jobs) < portion or len(jobs) >= limit:
            is_more = claims.is_more or (is_over and len(claims.jobs) == portion)
            return msgspec.structs.replace(claims, jobs=jobs, expired=first.expired, is_more=is_more)


async def get(store: Reads, queue: QueueRef, ids: Sequence[str], *, most_bytes: int) -> list[Job | None]:
    """The records of these ids, or of as many of the first ones as an answer holds."""
    found: list[Job | None] = []
    size = 0
    while len(found) < len(ids) and size < most_bytes and len(found) < MOST_RECORDS:
        page = await store.get(queue, ids[len(found) : len(found) + PORTION])
        found += page
        size += sum(_size_of(job) for job in page if job is not None)
    return found


async def find(store: Reads, queue: QueueRef, query: Query, *, most_bytes: int) -> Page:
    """A page of jobs, shorter than was asked for where they are large."""
    portion = PORTION if query.payloads or query.results else SLIM_PORTION
    jobs: list[Job] = []
    after, size, limit = query.after, 0, min(query.limit, MOST_RECORDS)
    while True:
        some = msgspec.structs.replace(query, after=after, limit=min(portion, limit - len(jobs)))
        page = await store.find(queue, some)
        jobs += page.jobs
        after = page.next
        size += sum(map(_size_of, page.jobs))
        if after is None or len(jobs) >= limit or size >= most_bytes:
            return Page(jobs, after)


async def relays(
    store: Flows, queue: QueueRef, limit: int = RELAY_LIMIT, *, after: int = 0, most_bytes: int
) -> list[Relay]:
    """The entries that follow, or as many of them as an answer holds."""

    async def page(found: Sequence[Relay], many: int) -> list[Relay]:
        return await store.list_relay_entries(queue, many, after=found[-1].number if found else after)

    return await _until(limit, PORTION, page, _size_of_relay, most_bytes)


async def children(
    store: Flows,
    queue: QueueRef,
    job: str,
    *,
    after: int = 0,
    limit: int | None = None,
    results: bool = True,
    most_bytes: int,
) -> list[Child]:
    """The children that follow, or as many of them as an answer holds."""

    async def page(found: Sequence[Child], many: int) -> list[Child]:
        return await store.children(queue, job, after=after + len(found), limit=many, results=results)

    most = MOST_RECORDS if limit is None else min(limit, MOST_RECORDS)
    # Without results all are read at once: a store may have to look at all of them for each page.
    portion = PORTION if results else MOST_RECORDS
    return await _until(most, portion, page, lambda child: len(child.result or b""), most_bytes)


async def entries(
    store: KeyValue,
    tenant: str,
    namespace: str,
    *,
    after: str = "",
    limit: int = ENTRY_LIMIT,
    most_bytes: int,
) -> list[KeyValueEntry]:
    """The entries that follow, or as many of them as an answer holds."""

    async def page(found: Sequence[KeyValueEntry], many: int) -> list[KeyValueEntry]:
        return await store.list_entries(
            tenant, namespace, after=found[-1].name if found else after, limit=many
        )

    return await _until(limit, ENTRY_LIMIT, page, lambda entry: len(entry.body), most_bytes)


async def _until(
    limit: int,
    portion: int,
    page: Callable[[Sequence[T], int], Awaitable[list[T]]],
    size_of: Callable[[T], int],
    most_bytes: int,
) -> list[T]:
    found: list[T] = []
    size = 0
    while size < most_bytes and (many := min(portion, limit - len(found))) > 0:
        some = await page(found, many)
        found += some
        its_size = sum(map(size_of, some))
        size += its_size
        if len(some) < many:
            break
        if its_size < CHUNK_BYTES:
            portion = max(portion, min(4 * portion, LARGEST_PORTION))
    return found


def _portions(items: Sequence[Any]) -> list[Sequence[Any]]:
    """Runs of items that are one call to the store, bounded in number and size."""
    out: list[Sequence[Any]] = []
    start = weight = size = 0
    for place, item in enumerate(items):
        count = 1 + len(item.children) if isinstance(item, Adoption) else 1
        its_size = len(getattr(item, "payload", None) or getattr(item, "result", None) or b"")
        if place > start and (weight + count > CHUNK_JOBS or size + its_size > CHUNK_BYTES):
            out.append(items[start:place])
            start, weight, size = place, 0, 0
        weight += count
        size += its_size
    out.append(items[start:])
    return out


def _size_of(job: Job) -> int:
    return len(job.payload) + len(job.result or b"") + len(job.progress or b"")


def _size_of_relay(entry: Relay) -> int:
    return len(getattr(entry.what, "payload", None) or getattr(entry.what, "result", None) or b"")
