"""Dead letters, jobs that used up their attempts: list, redrive and purge them."""

from typing import Final

from penstock.core.states import State
from penstock.service.job_selection import listed
from penstock.service.paging import after_of
from penstock.service.principal import Verb
from penstock.service.request import Request
from penstock.service.routes.bulk import delete_selected, redrive_selected
from penstock.service.routes.jobs import page_view
from penstock.service.routing import Routes
from penstock.service.wire.filters import DeadLetterSelection, JobMatch
from penstock.service.wire.jobs import JobPage, Limit
from penstock.service.wire.queues import Count

routes: Final = Routes()
DEAD: Final = frozenset({State.DEAD})


class DeadLetterListQuery(JobMatch, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Filters dead letters. `after` is the `next` of the page before."""

    limit: Limit = 100
    after: str | None = None
    payload: bool = False


@routes.get("/v1/queues/{queue}/dead-letters", Verb.READ, is_costly=True)
async def list_dead_letters(request: Request, queue: str, query: DeadLetterListQuery) -> JobPage:
    """List dead letters, the newest first."""
    info = await request.queue(queue)
    page = await listed(
        request,
        info.queue,
        query.filter(DEAD, is_query=True),
        limit=query.limit,
        after=after_of(query.after),
        payloads=query.payload,
    )
    return await page_view(request, page, payload=query.payload)


@routes.post("/v1/queues/{queue}/dead-letters/redrive", Verb.MANAGE)
async def redrive_dead_letters(request: Request, queue: str, body: DeadLetterSelection) -> Count:
    """Redrive dead letters in their order, with all their attempts; returns their number."""
    return await redrive_selected(request, queue, body, DEAD, "dead_letters.redrive")


@routes.post("/v1/queues/{queue}/dead-letters/purge", Verb.MANAGE)
async def purge_dead_letters(request: Request, queue: str, body: DeadLetterSelection) -> Count:
    """Delete dead letters for good; returns their number."""
    return await delete_selected(request, queue, body, DEAD, "dead_letters.purge")
