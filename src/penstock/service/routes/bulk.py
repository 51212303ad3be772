"""Many jobs of a queue at once, by ids or by a filter: retry them, cancel them, delete them."""

from typing import Final

from penstock.core.errors import OptionError
from penstock.core.outcomes import Applied
from penstock.core.states import LIVE, REDRIVABLE, State
from penstock.service.ask import Ask
from penstock.service.errors import QuotaError
from penstock.service.principal import Verb
from penstock.service.routing import Routes
from penstock.service.selecting import selected
from penstock.service.wire.filters import JobSelection, StatesSelection
from penstock.service.wire.queues import Many

routes: Final = Routes()
RETRIED: Final = frozenset({State.DEAD, State.FAILED})
"""What is run again unless other states are named: somebody decided to cancel what is cancelled."""
DELETABLE: Final = frozenset(State) - {State.ACTIVE}


@routes.post("/v1/queues/{queue}/bulk/retry", Verb.MANAGE)
async def retry_many(ask: Ask, queue: str, body: StatesSelection) -> Many:
    """Run dead and failed jobs again, in their order, with all their attempts. How many there were."""
    states = _states(body, RETRIED, REDRIVABLE)
    return await redrive_selected(ask, queue, body, states, "jobs.retry")


@routes.post("/v1/queues/{queue}/bulk/cancel", Verb.MANAGE)
async def cancel_many(ask: Ask, queue: str, body: StatesSelection) -> Many:
    """Cancel live jobs: what waits is taken back, what runs is asked to stop. How many there were."""
    states, many = _states(body, LIVE, LIVE), 0
    info = await ask.queue(queue)
    async for ids in selected(ask, info.queue, body, states):
        many += sum(isinstance(answer, Applied) for answer in await ask.store.cancel(info.queue, ids))
    await ask.note("jobs.cancel", queue, f"{many} jobs")
    return Many(many)


@routes.post("/v1/queues/{queue}/bulk/delete", Verb.MANAGE)
async def delete_many(ask: Ask, queue: str, body: StatesSelection) -> Many:
    """Delete jobs that are not running; by ids, or in the named states. How many there were."""
    if body.ids is None and body.states is None:
        raise OptionError("states", None, "ids, or some states to delete jobs in")
    states = _states(body, DELETABLE, DELETABLE)
    return await delete_selected(ask, queue, body, states, "jobs.delete")


async def redrive_selected(
    ask: Ask, queue: str, wish: JobSelection, states: frozenset[State], act: str
) -> Many:
    """Redrive the jobs that are meant, as far as quotas allow it."""
    info, many = await ask.queue(queue), 0
    async for ids in selected(ask, info.queue, wish, states):
        try:
            async with ask.redriving(info.queue, len(ids)):
                answers = await ask.store.redrive(info.queue, ids)
        except QuotaError as error:
            if many:
                await ask.note(act, queue, f"{many} jobs")
            error.args = (f"{error}; {many} jobs were redriven before",)
            raise
        many += sum(isinstance(answer, Applied) for answer in answers)
    await ask.note(act, queue, f"{many} jobs")
    return Many(many)


async def delete_selected(
    ask: Ask, queue: str, wish: JobSelection, states: frozenset[State], act: str
) -> Many:
    """Delete the jobs that are meant."""
    info, many = await ask.queue(queue), 0
    async for ids in selected(ask, info.queue, wish, states):
        many += sum(isinstance(answer, Applied) for answer in await ask.store.delete(info.queue, ids))
    await ask.note(act, queue, f"{many} jobs")
    return Many(many)


def _states(wish: StatesSelection, default: frozenset[State], able: frozenset[State]) -> frozenset[State]:
    states = default if wish.states is None else frozenset(wish.states)
    for state in State:
        if state in states - able:
            raise OptionError("states", state, f"some of {', '.join(each for each in State if each in able)}")
    return states
