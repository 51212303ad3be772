"""Dead letters: jobs that nothing helped. List them, redrive them, purge them."""

from collections.abc import AsyncIterator
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from penstock.core.job import Job, QueueRef
from penstock.core.outcomes import Applied
from penstock.core.states import State
from penstock.service import portions
from penstock.service.ask import Ask
from penstock.service.errors import QuotaError
from penstock.service.paging import after_of
from penstock.service.principal import Verb
from penstock.service.routes.jobs import page_view
from penstock.service.routing import Routes
from penstock.service.wire.jobs import JobPage, Limit, Name
from penstock.service.wire.queues import Many
from penstock.stores.portions import slim_jobs
from penstock.stores.values import Query

routes: Final = Routes()
PAGE: Final = 500
Text = Annotated[str, Meta(max_length=200)]


class LettersQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which. `after` is the `next` of the page before."""

    task: Name | None = None
    limit: Limit = 100
    after: str | None = None
    payload: bool = False


class LettersWish(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which dead letters: these ids, or those of a task, reason or fingerprint; without any, all of them."""

    ids: Annotated[list[Name], Meta(min_length=1, max_length=1_000)] | None = None
    task: Name | None = None
    reason: Text | None = None
    fingerprint: Text | None = None
    limit: Annotated[int, Meta(ge=1, le=100_000)] = 10_000
    """How many at most."""

    def means(self, job: Job) -> bool:
        """True for one of them."""
        return self.reason in (None, job.reason) and self.fingerprint in (None, job.fingerprint)


@routes.get("/v1/queues/{queue}/dead-letters", Verb.READ)
async def list_dead_letters(ask: Ask, queue: str, query: LettersQuery) -> JobPage:
    """List dead letters, the newest first."""
    info = await ask.queue(queue)
    wanted = Query(
        states=frozenset({State.DEAD}),
        task=query.task,
        limit=query.limit,
        after=after_of(query.after),
        payloads=query.payload,
        results=False,
    )
    page = await portions.find(ask.store, info.queue, wanted, most_bytes=ask.service.limits.answer_bytes)
    return await page_view(ask, page, payload=query.payload)


@routes.post("/v1/queues/{queue}/dead-letters/redrive", Verb.MANAGE)
async def redrive_dead_letters(ask: Ask, queue: str, body: LettersWish) -> Many:
    """Give dead letters a new life: all their attempts, their own policy. How many got one."""
    info, many = await ask.queue(queue), 0
    async for ids in _chosen(ask, info.queue, body):
        try:
            async with ask.redriving(info.queue, len(ids)):
                answers = await ask.store.redrive(info.queue, ids)
        except QuotaError as error:
            if many:
                await ask.note("dead_letters.redrive", queue, f"{many} jobs")
            error.args = (f"{error}; {many} jobs were redriven before",)
            raise
        many += sum(isinstance(answer, Applied) for answer in answers)
    await ask.note("dead_letters.redrive", queue, f"{many} jobs")
    return Many(many)


@routes.post("/v1/queues/{queue}/dead-letters/purge", Verb.MANAGE)
async def purge_dead_letters(ask: Ask, queue: str, body: LettersWish) -> Many:
    """Delete dead letters for good. How many were."""
    info, many = await ask.queue(queue), 0
    async for ids in _chosen(ask, info.queue, body):
        many += sum(isinstance(answer, Applied) for answer in await ask.store.delete(info.queue, ids))
    await ask.note("dead_letters.purge", queue, f"{many} jobs")
    return Many(many)


async def _chosen(ask: Ask, queue: QueueRef, wish: LettersWish) -> AsyncIterator[list[str]]:
    """The ids meant, some at a time, and only of jobs that are dead."""
    left = wish.limit
    if wish.ids is not None:
        records = await slim_jobs(ask.store, queue, wish.ids)
        dead = [job for job in records if job is not None and job.state is State.DEAD]
        yield [job.id for job in dead if wish.means(job) and wish.task in (None, job.task)][:left]
        return
    after: str | None = None
    while left > 0:
        query = Query(
            states=frozenset({State.DEAD}),
            task=wish.task,
            limit=PAGE,
            after=after,
            payloads=False,
            results=False,
        )
        page = await ask.store.find(queue, query)
        ids = [job.id for job in page.jobs if wish.means(job)][:left]
        if ids:
            yield ids
            left -= len(ids)
        if page.next is None:
            return
        after = page.next
