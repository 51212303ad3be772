"""Which jobs a person or a program means: the one filter for lists and for acting on many jobs at once."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from penstock.core.job import Job, QueueRef
from penstock.core.states import State
from penstock.stores.protocol import Reads
from penstock.stores.values import Query

if TYPE_CHECKING:
    # It brings SQLite along, which most processes do not need.
    from penstock.client.where import Where

PAGE: Final = 500
"""Jobs that are read and acted on by one call."""
PAGE_WITH_PAYLOADS: Final = 50
"""Jobs that are read by one call where a condition may need their payloads, which may be large."""


class JobFilter(msgspec.Struct, frozen=True, kw_only=True):
    """All fields have to hold; None leaves a field out of it.

    `since` is a time in Unix milliseconds, compared with the ending where all `states` are endings, and else
    with the enqueue. `where` is an SQL condition.
    """

    states: frozenset[State] = frozenset()
    task: str | None = None
    key: str | None = None
    since: int | None = None
    reason: str | None = None
    fingerprint: str | None = None
    where: "Where | None" = None

    @property
    def is_narrow(self) -> bool:
        """True when not every job in these states is meant."""
        return msgspec.structs.replace(self, states=frozenset()) != JobFilter()

    def query(
        self, *, limit: int, after: str | None = None, oldest_first: bool = False, results: bool = False
    ) -> Query:
        """What of the filter a store answers itself."""
        return Query(
            states=self.states,
            task=self.task,
            key=self.key,
            since=self.since,
            limit=limit,
            after=after,
            oldest_first=oldest_first,
            payloads=self.where is not None,
            results=results,
        )

    async def matching(self, jobs: Sequence[Job], now: int) -> list[Job]:
        """The jobs that are meant, in their order. A job may have moved on since it was listed."""
        found = [
            job
            for job in jobs
            if (not self.states or job.state in self.states)
            and self.task in (None, job.task)
            and self.key in (None, job.key)
            and (self.since is None or self.age(job) >= self.since)
            and self.reason in (None, job.reason)
            and self.fingerprint in (None, job.fingerprint)
        ]
        if self.where is None or not found:
            return found
        # In a thread, so that a condition which takes its time keeps nothing else waiting.
        async with self.where.turn:
            return await asyncio.to_thread(self.where.matching, found, now)

    def age(self, job: Job) -> int:
        """The time that jobs are listed by."""
        return (job.ended_at or 0) if Query(states=self.states).is_by_end else job.enqueued_at

    def cursor(self, job: Job) -> str:
        """Where a list goes on after this job."""
        return f"{self.age(job)}/{job.id}"


async def matching_pages(
    store: Reads,
    queue: QueueRef,
    wanted: JobFilter,
    now: int,
    *,
    limit: int | None = None,
    after: str | None = None,
    oldest_first: bool = False,
    results: bool = False,
) -> AsyncIterator[list[Job]]:
    """The jobs that are meant, at most `limit`, page by page; `now` is the store's time.

    A job that is moved on between two pages is not met again: the cursor is a time and an id, not a position.
    From the oldest on, jobs that came or ended after `now` are left out: among them are jobs that were met
    before, run again and ended anew.
    """
    left = limit
    size = PAGE if wanted.where is None else PAGE_WITH_PAYLOADS
    while left is None or left > 0:
        query = wanted.query(limit=size, after=after, oldest_first=oldest_first, results=results)
        page = await store.find(queue, query)
        found = [job for job in page.jobs if not oldest_first or wanted.age(job) <= now]
        jobs = (await wanted.matching(found, now))[:left]
        if jobs:
            yield jobs
            left = None if left is None else left - len(jobs)
        if page.next is None or len(found) < len(page.jobs):
            return
        after = page.next
