"""Jobs that a request means, page by page: to list them, and to change them."""

from collections.abc import AsyncIterator
from typing import Final

from msgspec.structs import replace

from penstock.client.job_filter import PAGE_WITH_PAYLOADS, JobFilter, matching_pages
from penstock.core.job import Job, QueueRef
from penstock.core.states import State
from penstock.service import portions
from penstock.service.ask import Ask
from penstock.service.wire.filters import JobSelection
from penstock.stores.portions import PORTION
from penstock.stores.values import Page

PAGES: Final = 20
"""Pages of a store that one request looks through for jobs which only the service can tell apart."""


async def listed(
    ask: Ask,
    queue: QueueRef,
    wanted: JobFilter,
    *,
    limit: int,
    after: str | None,
    payloads: bool = False,
    results: bool = False,
) -> Page:
    """A page of jobs, the newest first. It may be shorter than `limit` before the end."""
    is_stores = wanted.where is None and wanted.reason is None and wanted.fingerprint is None
    now = 0 if is_stores else await ask.store.now()
    many = limit if is_stores else min(limit, PAGE_WITH_PAYLOADS)
    most_bytes = ask.service.limits.answer_bytes
    found: list[Job] = []
    most_bytes = ask.service.limits.answer_bytes
    for _ in range(PAGES):
        query = wanted.query(limit=many, after=after, results=results)
        query = replace(query, payloads=payloads or query.payloads)
        page = await portions.find(ask.store, queue, query, most_bytes=most_bytes)
        if is_stores:
            return page
        found += await wanted.matching(page.jobs, now)
        if len(found) > limit:
            return Page(found[:limit], wanted.cursor(found[limit - 1]))
        after = page.next
        size = sum(len(job.payload) + len(job.result or b"") for job in found)
        if after is None or len(found) == limit or size >= most_bytes:
            break
    return Page(found, after)


async def selected(
    ask: Ask, queue: QueueRef, wish: JobSelection, states: frozenset[State]
) -> AsyncIterator[list[str]]:
    """The ids of jobs that are to be changed, some at a time, the oldest first."""
    wanted, now = wish.filter(states), await ask.store.now()
    if wish.ids is not None:
        left = wish.limit
        for start in range(0, len(wish.ids), PORTION):
            records = await ask.store.get(queue, wish.ids[start : start + PORTION])
            jobs = (await wanted.matching([job for job in records if job is not None], now))[:left]
            left -= len(jobs)
            if jobs:
                yield [job.id for job in jobs]
        return
    async for page in matching_pages(ask.store, queue, wanted, now, limit=wish.limit, oldest_first=True):
        yield [job.id for job in page]
