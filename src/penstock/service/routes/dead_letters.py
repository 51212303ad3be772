"""Dead letters: jobs that nothing helped. List them, redrive them, purge them."""

from typing import Final

from penstock.core.states import State
from penstock.service.ask import Ask
from penstock.service.paging import after_of
from penstock.service.principal import Verb
from penstock.service.routes.bulk import delete_selected, redrive_selected
from penstock.service.routes.jobs import page_view
from penstock.service.routing import Routes
from penstock.service.selecting import listed
from penstock.service.wire.filters import JobMatch, JobSelection
from penstock.service.wire.jobs import JobPage, Limit
from penstock.service.wire.queues import Many

routes: Final = Routes()
DEAD: Final = frozenset({State.DEAD})


class LettersQuery(JobMatch, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which. `after` is the `next` of the page before."""

    limit: Limit = 100
    after: str | None = None
    payload: bool = False


@routes.get("/v1/queues/{queue}/dead-letters", Verb.READ)
async def list_dead_letters(ask: Ask, queue: str, query: LettersQuery) -> JobPage:
    """List dead letters, the newest first."""
    info = await ask.queue(queue)
    page = await listed(
        ask,
        info.queue,
        query.filter(DEAD, is_query=True),
        limit=query.limit,
        after=after_of(query.after),
        payloads=query.payload,
    )
    return await page_view(ask, page, payload=query.payload)


@routes.post("/v1/queues/{queue}/dead-letters/redrive", Verb.MANAGE)
async def redrive_dead_letters(ask: Ask, queue: str, body: JobSelection) -> Many:
    """Give dead letters a new life, in their order: all their attempts, their own policy. How many did."""
    return await redrive_selected(ask, queue, body, DEAD, "dead_letters.redrive")


@routes.post("/v1/queues/{queue}/dead-letters/purge", Verb.MANAGE)
async def purge_dead_letters(ask: Ask, queue: str, body: JobSelection) -> Many:
    """Delete dead letters for good. How many were."""
    return await delete_selected(ask, queue, body, DEAD, "dead_letters.purge")
