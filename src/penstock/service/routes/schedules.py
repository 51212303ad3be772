"""Schedules: put, look, pause, resume, run, remove."""

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import Final

from penstock.core.cron.schedule import Schedule
from penstock.core.errors import OptionError, StoreVersionError, WrongStateError
from penstock.scheduler.book import ScheduleBook, ScheduleInfo
from penstock.service.answers import Answer
from penstock.service.ask import Ask
from penstock.service.errors import NotFoundError
from penstock.service.principal import Verb
from penstock.service.routing import Routes
from penstock.service.wire.jobs import Made
from penstock.service.wire.schedules import (
    Runs,
    RunsQuery,
    ScheduleList,
    ScheduleView,
    ScheduleWish,
    schedule_view,
)

routes: Final = Routes()


@routes.get("/v1/schedules", Verb.READ)
async def list_schedules(ask: Ask) -> ScheduleList:
    """List schedules of the queues that the token lets see."""
    kept = await _book(ask).list()
    return ScheduleList([schedule_view(each) for each in kept if ask.may(each.queue)])


@routes.get("/v1/schedules/{name}", Verb.READ)
async def show_schedule(ask: Ask, name: str) -> ScheduleView:
    """Show a schedule."""
    return schedule_view(await _known(ask, name))


@routes.put("/v1/schedules/{name}", Verb.MANAGE, also=(201,))
async def put_schedule(ask: Ask, name: str, body: ScheduleWish) -> Answer[ScheduleView]:
    """Put a schedule in the place of the one of its name; 201 when it is new."""
    ask.require(body.queue)
    book = _book(ask)
    schedule = body.schedule(name)
    known = await book.named(name)
    for each in known:
        # A token for one queue moves nothing out of another.
        ask.require(each.queue)
    elsewhere = [each.queue for each in known if each.queue != body.queue]
    async with _adding(ask, body.queue, schedule, elsewhere):
        await book.put(body.queue, schedule)
    ask.service.changed(ask.ref(body.queue))
    await ask.note("schedule.put", name, f"in queue {body.queue}")
    return Answer(schedule_view(await book.show(name)), 200 if known else 201)


@routes.delete("/v1/schedules/{name}", Verb.MANAGE)
async def remove_schedule(ask: Ask, name: str) -> ScheduleView:
    """Remove a schedule; jobs that it made stay."""
    await _known(ask, name)
    with _missing(name):
        removed = await _book(ask).remove(name)
    await ask.note("schedule.remove", name)
    return schedule_view(removed)


@routes.post("/v1/schedules/{name}/pause", Verb.MANAGE)
async def pause_schedule(ask: Ask, name: str) -> ScheduleView:
    """Fire no more until it is resumed."""
    await _known(ask, name)
    with _missing(name):
        info = await _book(ask).pause(name)
    await ask.note("schedule.pause", name)
    return schedule_view(info)


@routes.post("/v1/schedules/{name}/resume", Verb.MANAGE)
async def resume_schedule(ask: Ask, name: str) -> ScheduleView:
    """Fire again, from now on."""
    await _known(ask, name)
    with _missing(name):
        info = await _book(ask).resume(name)
    ask.service.changed(ask.ref(info.queue))
    await ask.note("schedule.resume", name)
    return schedule_view(info)


@routes.post("/v1/schedules/{name}/run", Verb.MANAGE)
async def run_schedule(ask: Ask, name: str) -> Made:
    """Enqueue its job at once, beside its instants."""
    info = await _known(ask, name)
    async with ask.enqueueing({info.queue: [len(info.schedule.payload)]}):
        with _missing(name):
            queue, job = await _book(ask).run_now(name)
    return Made(id=job, queue=queue, created=True)


@routes.get("/v1/schedules/{name}/runs", Verb.READ)
async def next_runs(ask: Ask, name: str, query: RunsQuery) -> Runs:
    """Say when it fires next."""
    await _known(ask, name)
    with _missing(name):
        return Runs(await _book(ask).next_runs(name, query.count))


@asynccontextmanager
async def _adding(ask: Ask, queue: str, schedule: Schedule, elsewhere: Sequence[str]) -> AsyncIterator[None]:
    """Room in the tenant's quotas for the schedule, and for its queue where that is new."""
    quotas = ask.service.quotas
    async with AsyncExitStack() as stack:
        if quotas is not None:
            await stack.enter_async_context(ask.opening([queue]))
            adding = quotas.adding_schedule(
                ask.tenant, queue, schedule.name, len(schedule.payload), moved_from=elsewhere
            )
            await stack.enter_async_context(adding)
        yield


def _book(ask: Ask) -> ScheduleBook:
    return ScheduleBook(ask.store, ask.tenant)


async def _known(ask: Ask, name: str) -> ScheduleInfo:
    """The schedule, if it is one of a queue that the token is for."""
    with _missing(name):
        info = await _book(ask).show(name)
    ask.require(info.queue)
    return info


@contextmanager
def _missing(name: str) -> Iterator[None]:
    """One that is not there, or no longer, is not found; one that cannot be read can only be removed."""
    try:
        yield
    except OptionError as error:
        if error.field != "schedule":
            raise
        raise NotFoundError(f"no schedule {name!r}") from None
    except StoreVersionError as error:
        raise WrongStateError(str(error)) from None
