"""Many jobs of a queue at once, by ids or by a filter: retry them, cancel them, delete them."""

from typing import Final

from penstock.core.errors import OptionError
from penstock.core.outcomes import Applied
from penstock.core.states import LIVE, REDRIVABLE, State
from penstock.service.errors import QuotaError
from penstock.service.job_selection import selected
from penstock.service.principal import Verb
from penstock.service.request import Request
from penstock.service.routing import Routes
from penstock.service.wire.filters import JobSelection, JobStateSelection
from penstock.service.wire.queues import Count

routes: Final = Routes()
RETRIED: Final = frozenset({State.DEAD, State.FAILED})
"""States of the jobs that run again unless the request names others.

A cancelled job was cancelled on purpose.
"""
DELETABLE: Final = frozenset(State) - {State.ACTIVE}


@routes.post("/v1/queues/{queue}/bulk/retry", Verb.MANAGE)
async def retry_many(request: Request, queue: str, body: JobStateSelection) -> Count:
    """Run dead and failed jobs again, in their order, with all their attempts; returns their number."""
    states = _states(body, RETRIED, REDRIVABLE)
    return await redrive_selected(request, queue, body, states, "jobs.retry")


@routes.post("/v1/queues/{queue}/bulk/cancel", Verb.MANAGE)
async def cancel_many(request: Request, queue: str, body: JobStateSelection) -> Count:
    """Cancel jobs: waiting jobs end at once, running jobs are asked to stop; returns their number."""
    states, many = _states(body, LIVE, LIVE), 0
    info = await request.queue(queue)
    async for ids in selected(request, info.queue, body, states):
        many += sum(
            isinstance(answer, Applied) for answer in await request.store.moves.cancel(info.queue, ids)
        )
    await request.note("jobs.cancel", queue, f"{many} jobs")
    return Count(many)


@routes.post("/v1/queues/{queue}/bulk/delete", Verb.MANAGE)
async def delete_many(request: Request, queue: str, body: JobStateSelection) -> Count:
    """Delete jobs that are not running, by ids or in the named states; returns their number."""
    if body.ids is None and body.states is None:
        raise OptionError("states", None, "ids, or some states to delete jobs in")
    states = _states(body, DELETABLE, DELETABLE)
    return await delete_selected(request, queue, body, states, "jobs.delete")


async def redrive_selected(
    request: Request, queue: str, selection: JobSelection, states: frozenset[State], action: str
) -> Count:
    """Redrive the selected jobs, as far as quotas allow it."""
    info, many = await request.queue(queue), 0
    async for ids in selected(request, info.queue, selection, states):
        try:
            async with request.redriving(info.queue, len(ids)):
                answers = await request.store.moves.redrive(info.queue, ids)
        except QuotaError as error:
            if many:
                await request.note(action, queue, f"{many} jobs")
            error.args = (f"{error}; {many} jobs were redriven before",)
            raise
        many += sum(isinstance(answer, Applied) for answer in answers)
    await request.note(action, queue, f"{many} jobs")
    return Count(many)


async def delete_selected(
    request: Request, queue: str, selection: JobSelection, states: frozenset[State], action: str
) -> Count:
    """Delete the selected jobs."""
    info, many = await request.queue(queue), 0
    async for ids in selected(request, info.queue, selection, states):
        many += sum(
            isinstance(answer, Applied) for answer in await request.store.moves.delete(info.queue, ids)
        )
    await request.note(action, queue, f"{many} jobs")
    return Count(many)


def _states(
    selection: JobStateSelection, default: frozenset[State], able: frozenset[State]
) -> frozenset[State]:
    states = default if selection.states is None else frozenset(selection.states)
    for state in State:
        if state in states - able:
            raise OptionError("states", state, f"some of {', '.join(each for each in State if each in able)}")
    return states
