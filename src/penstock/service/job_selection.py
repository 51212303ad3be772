"""Selects the jobs that a request lists or changes, page by page."""

from collections.abc import AsyncIterator
from typing import Final

from msgspec.structs import replace

from penstock.client.job_filter import PAGE_WITH_PAYLOADS, JobFilter, matching_pages
from penstock.core.job import Job, QueueRef
from penstock.core.states import State
from penstock.service import portions
from penstock.service.request import Request
from penstock.service.wire.filters import JobSelection
from penstock.stores.portions import PORTION
from penstock.stores.values import Page

PAGES: Final = 20
"""Pages of a store that one request looks through for jobs which only the service can tell apart."""


async def listed(
    request: Request,
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
    now = 0 if is_stores else await request.store.clock.now()
    _take_turns(request, wanted)
    many = limit if is_stores else min(limit, PAGE_WITH_PAYLOADS)
    most_bytes = request.service.limits.answer_bytes
    found: list[Job] = []
    for _ in range(PAGES):
        query = wanted.query(limit=many, after=after, results=results)
        query = replace(query, payloads=payloads or query.payloads)
        page = await portions.find(request.store.reads, queue, query, most_bytes=most_bytes)
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
    request: Request, queue: QueueRef, selection: JobSelection, states: frozenset[State]
) -> AsyncIterator[list[str]]:
    """The ids of jobs that are to be changed, some at a time, the oldest first."""
    wanted, now = selection.filter(states), await request.store.clock.now()
    _take_turns(request, wanted)
    if selection.ids is not None:
        left = selection.limit
        for start in range(0, len(selection.ids), PORTION):
            records = await request.store.reads.get(queue, selection.ids[start : start + PORTION])
            jobs = (await wanted.matching([job for job in records if job is not None], now))[:left]
            left -= len(jobs)
            if jobs:
                yield [job.id for job in jobs]
        return
    async for page in matching_pages(
        request.store.reads, queue, wanted, now, limit=selection.limit, oldest_first=True
    ):
        yield [job.id for job in page]


def _take_turns(request: Request, wanted: JobFilter) -> None:
    """Let the tenant's conditions be evaluated one at a time: threads are few, and those of all tenants."""
    if wanted.where is not None:
        wanted.where.turn = request.service.condition_lock(request.tenant)
