"""Schedules: put, show, pause, resume, run and remove them."""

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import Final

from penstock.core.cron.schedule import Schedule
from penstock.core.errors import OptionError, StoreVersionError, WrongStateError
from penstock.schedules.repository import ScheduleInfo, ScheduleRepository
from penstock.service.errors import NotFoundError
from penstock.service.principal import Verb
from penstock.service.request import Request
from penstock.service.responses import Response
from penstock.service.routing import Routes
from penstock.service.wire.jobs import JobCreated
from penstock.service.wire.schedules import (
    ScheduleList,
    ScheduleReplace,
    ScheduleView,
    UpcomingRuns,
    UpcomingRunsQuery,
    schedule_view,
)

routes: Final = Routes()


@routes.get("/v1/schedules", Verb.READ, is_costly=True)
async def list_schedules(request: Request) -> ScheduleList:
    """List the schedules of queues that the token can read."""
    kept = await _repository(request).list()
    return ScheduleList([schedule_view(each) for each in kept if request.may(each.queue)])


@routes.get("/v1/schedules/{name}", Verb.READ)
async def show_schedule(request: Request, name: str) -> ScheduleView:
    """Show a schedule."""
    return schedule_view(await _known(request, name))


@routes.put("/v1/schedules/{name}", Verb.MANAGE, also=(201,))
async def put_schedule(request: Request, name: str, body: ScheduleReplace) -> Response[ScheduleView]:
    """Create a schedule, or replace the one of this name; 201 when it is new."""
    request.require(body.queue)
    repository = _repository(request)
    schedule = body.schedule(name)
    known = await repository.named(name)
    for each in known:
        # A token for one queue moves nothing out of another.
        request.require(each.queue)
    elsewhere = [each.queue for each in known if each.queue != body.queue]
    async with _adding(request, body.queue, schedule, elsewhere):
        await repository.put(body.queue, schedule)
    request.service.changed(request.ref(body.queue))
    await request.note("schedule.put", name, f"in queue {body.queue}")
    return Response(schedule_view(await repository.show(name)), 200 if known else 201)


@routes.delete("/v1/schedules/{name}", Verb.MANAGE)
async def remove_schedule(request: Request, name: str) -> ScheduleView:
    """Remove a schedule; jobs that it enqueued stay."""
    await _known(request, name)
    with _missing(name):
        removed = await _repository(request).remove(name)
    await request.note("schedule.remove", name)
    return schedule_view(removed)


@routes.post("/v1/schedules/{name}/pause", Verb.MANAGE)
async def pause_schedule(request: Request, name: str) -> ScheduleView:
    """Pause a schedule: it does not fire until it is resumed."""
    await _known(request, name)
    with _missing(name):
        info = await _repository(request).pause(name)
    await request.note("schedule.pause", name)
    return schedule_view(info)


@routes.post("/v1/schedules/{name}/resume", Verb.MANAGE)
async def resume_schedule(request: Request, name: str) -> ScheduleView:
    """Resume a paused schedule from now on."""
    await _known(request, name)
    with _missing(name):
        info = await _repository(request).resume(name)
    request.service.changed(request.ref(info.queue))
    await request.note("schedule.resume", name)
    return schedule_view(info)


@routes.post("/v1/schedules/{name}/run", Verb.MANAGE)
async def run_schedule(request: Request, name: str) -> JobCreated:
    """Enqueue the job of a schedule now, beside its regular runs."""
    info = await _known(request, name)
    async with request.enqueueing({info.queue: [len(info.schedule.payload)]}):
        with _missing(name):
            queue, job = await _repository(request).run_now(name)
    return JobCreated(id=job, queue=queue, created=True)


@routes.get("/v1/schedules/{name}/runs", Verb.READ)
async def next_runs(request: Request, name: str, query: UpcomingRunsQuery) -> UpcomingRuns:
    """List the next runs of a schedule."""
    await _known(request, name)
    with _missing(name):
        return UpcomingRuns(await _repository(request).next_runs(name, query.count))


@asynccontextmanager
async def _adding(
    request: Request, queue: str, schedule: Schedule, elsewhere: Sequence[str]
) -> AsyncIterator[None]:
    """Room in the tenant's quotas for the schedule, and for its queue where that is new."""
    quotas = request.service.quotas
    async with AsyncExitStack() as stack:
        if quotas is not None:
            await stack.enter_async_context(request.opening([queue]))
            adding = quotas.adding_schedule(
                request.tenant, queue, schedule.name, len(schedule.payload), moved_from=elsewhere
            )
            await stack.enter_async_context(adding)
        yield


def _repository(request: Request) -> ScheduleRepository:
    return ScheduleRepository(request.store, request.tenant)


async def _known(request: Request, name: str) -> ScheduleInfo:
    """The schedule, if it is one of a queue that the token is for."""
    with _missing(name):
        info = await _repository(request).show(name)
    request.require(info.queue)
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
