"""Jobs: create, show, list, cancel, retry and delete them, wait for a result, explain a state."""

import asyncio
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from penstock.core.errors import (
    InvalidError,
    JobNotFoundError,
    OptionError,
    PenstockError,
    ResultTimeoutError,
    WrongStateError,
)
from penstock.core.job import Job
from penstock.core.outcomes import Applied, Refusal, Refused
from penstock.core.states import State
from penstock.explain.job_facts import gather_facts
from penstock.explain.sentences import explain
from penstock.service.job_admission import sizes_of
from penstock.service.job_selection import listed
from penstock.service.limits import LONGEST_WAIT
from penstock.service.paging import after_of, states_of
from penstock.service.principal import Verb
from penstock.service.problems import fault_of, problem_of
from penstock.service.request import Request
from penstock.service.responses import Response
from penstock.service.routing import Routes
from penstock.service.trace_headers import traced
from penstock.service.wire.filters import JobMatch
from penstock.service.wire.jobs import (
    JobBatchCreate,
    JobBatchResult,
    JobCreate,
    JobCreated,
    JobCreateResult,
    JobExplanation,
    JobOutcome,
    JobPage,
    JobResultView,
    JobView,
    Limit,
    job_view,
    raw,
)
from penstock.stores.values import Page
from penstock.tasks.call import Call
from penstock.tasks.handle import JobHandle

routes: Final = Routes()
IDEMPOTENCY_KEY: Final = "idempotency-key"
Wait = Annotated[float, Meta(ge=0, le=LONGEST_WAIT, description="Seconds to wait at most")]


class JobListQuery(JobMatch, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Filters jobs. `after` is the `next` of the page before."""

    state: str | None = None
    """States joined by commas, such as pending,delayed."""
    limit: Limit = 100
    after: str | None = None
    payload: bool = False
    result: bool = False


class JobQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to show of a job beside its record."""

    payload: bool = False
    result: bool = False


class JobResultQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Seconds to wait for the job to end."""

    wait: Wait = 0.0


@routes.post("/v1/queues/{queue}/jobs", Verb.ENQUEUE, status=201, also=(200,), idempotent=True)
async def create_job(request: Request, queue: str, body: JobCreate) -> Response[JobCreated]:
    """Create a job; when this is answered it is durable.

    201 when it was created, 200 when an earlier job stands for it.
    """
    async with request.enqueueing({queue: [len(bytes(body.payload))]}):
        call = body.call(queue, **_idempotency(request, body), **traced(request.headers, body.headers))
        made = _made(await request.client.send(call))
    return Response(made, 201 if made.created else 200, {"location": f"/v1/queues/{queue}/jobs/{made.id}"})


@routes.post("/v1/jobs", Verb.ENQUEUE)
async def create_jobs(request: Request, body: JobBatchCreate) -> JobBatchResult:
    """Create many jobs, in any queues of the tenant; each has a result of its own."""
    outcomes: dict[int, JobCreateResult] = {}
    for place, job in enumerate(body.jobs):
        try:
            request.require(job.queue)
        except PenstockError as error:
            outcomes[place] = JobCreateResult(problem=problem_of(error)[0])
    allowed = {place: job for place, job in enumerate(body.jobs) if place not in outcomes}
    sizes = sizes_of((job.queue, len(bytes(job.payload))) for job in allowed.values())
    async with request.enqueueing(sizes):
        calls: dict[int, Call[Any]] = {}
        for place, job in allowed.items():
            try:
                calls[place] = job.call(job.queue, **traced(request.headers, job.headers))
            except InvalidError as error:
                fault = fault_of(error, f"/jobs/{place}")
                problem = msgspec.structs.replace(problem_of(error)[0], errors=(fault,))
                outcomes[place] = JobCreateResult(problem=problem)
            await request.yielder.checkpoint()
        answers = await _send_many(request, list(calls.values()))
    for place, sent in zip(calls, answers, strict=True):
        if isinstance(sent, PenstockError):
            outcomes[place] = JobCreateResult(problem=problem_of(sent)[0])
        else:
            outcomes[place] = JobCreateResult(_made(sent))
    return JobBatchResult([outcomes[place] for place in range(len(body.jobs))])


@routes.get("/v1/queues/{queue}/jobs", Verb.READ, is_costly=True)
async def list_jobs(request: Request, queue: str, query: JobListQuery) -> JobPage:
    """List jobs, the newest first; by the time of their end where only ended states are listed."""
    info = await request.queue(queue)
    page = await listed(
        request,
        info.queue,
        query.filter(states_of(query.state), is_query=True),
        limit=query.limit,
        after=after_of(query.after),
        payloads=query.payload,
        results=query.result,
    )
    return await page_view(request, page, payload=query.payload, result=query.result)


@routes.get("/v1/queues/{queue}/jobs/{id}", Verb.READ)
async def show_job(request: Request, queue: str, id: str, query: JobQuery) -> JobView:  # noqa: A002 (the word for it)
    """Show a job."""
    return job_view(await request.client.job(queue, id), payload=query.payload, result=query.result)


@routes.delete("/v1/queues/{queue}/jobs/{id}", Verb.MANAGE)
async def delete_job(request: Request, queue: str, id: str) -> JobOutcome:  # noqa: A002 (the word for it)
    """Delete a job that is not running."""
    info = await request.queue(queue)
    (answer,) = await request.store.moves.delete(info.queue, [id])
    return _applied(queue, id, answer, "deleted")


@routes.post("/v1/queues/{queue}/jobs/{id}/cancel", Verb.MANAGE)
async def cancel_job(request: Request, queue: str, id: str) -> JobOutcome:  # noqa: A002 (the word for it)
    """Cancel a job: a waiting job ends at once, a running job is asked to stop."""
    await request.queue(queue)
    state = await request.client.cancel(queue, id)
    return JobOutcome(id, True, state, cancel_requested=state is State.ACTIVE)


@routes.post("/v1/queues/{queue}/jobs/{id}/retry", Verb.MANAGE)
async def retry_job(request: Request, queue: str, id: str) -> JobOutcome:  # noqa: A002 (the word for it)
    """Run a dead, failed or cancelled job again, with all its attempts."""
    info = await request.queue(queue)
    async with request.redriving(info.queue, 1):
        (answer,) = await request.store.moves.redrive(info.queue, [id])
    return _applied(queue, id, answer, "retried")


@routes.get("/v1/queues/{queue}/jobs/{id}/explain", Verb.READ, is_costly=True)
async def explain_job(request: Request, queue: str, id: str) -> JobExplanation:  # noqa: A002 (the word for it)
    """Explain in sentences why a job is in its state."""
    facts = await gather_facts(request.store, await request.client.job(queue, id), request.may)
    return JobExplanation(id, queue, facts.job.state, explain(facts))


@routes.get("/v1/queues/{queue}/jobs/{id}/result", Verb.READ, also=(202,))
async def job_result(request: Request, queue: str, id: str, query: JobResultQuery) -> Response[JobResultView]:  # noqa: A002
    """Wait for the result of a job; 202 when the job has not ended within the time."""
    job = await request.client.job(queue, id)
    if not job.state.is_ended and query.wait:
        async with request.held():
            job = await request.until_over(_ended(request, job, query.wait)) or job
    view = JobResultView(
        id=id,
        queue=queue,
        state=job.state,
        is_ended=job.state.is_ended,
        result=raw(job.result),
        reason=job.reason,
        error=job.error,
    )
    return Response(view, 200 if view.is_ended else 202)


async def page_view(request: Request, page: Page, *, payload: bool, result: bool = False) -> JobPage:
    """The page for the wire."""
    jobs: list[JobView] = []
    for job in page.jobs:
        jobs.append(job_view(job, payload=payload, result=result))
        await request.yielder.checkpoint()
    return JobPage(jobs, page.next)


async def _ended(request: Request, job: Job, wait: float) -> Job:
    try:
        return await request.client.ended(job.queue, job.id, wait)
    except ResultTimeoutError:
        return await request.client.job(job.queue, job.id)


def _idempotency(request: Request, job: JobCreate) -> dict[str, str]:
    """The idempotency key of the header; OptionError where the field has another one."""
    given = request.headers.get(IDEMPOTENCY_KEY)
    if given is None:
        return {}
    # The draft of the header has it as a quoted text; many send it bare.
    key = given[1:-1] if len(given) > 1 and given[0] == given[-1] == '"' else given
    if job.idempotency_key not in (msgspec.UNSET, key):
        raise OptionError("idempotency_key", job.idempotency_key, "what the header Idempotency-Key says")
    return {"idempotency_key": key}


async def _send_many(request: Request, calls: list[Call[Any]]) -> list[JobHandle[Any] | PenstockError]:
    try:
        return await request.client.send_many(calls)
    except InvalidError:
        # One that its queue cannot have, as for the lack of a key, would keep out all others.
        return await asyncio.gather(*(_sent(request, call) for call in calls))


async def _sent(request: Request, call: Call[Any]) -> JobHandle[Any] | PenstockError:
    try:
        return await request.client.send(call)
    except PenstockError as error:
        return error


def _made(handle: JobHandle[Any]) -> JobCreated:
    return JobCreated(
        id=handle.id,
        queue=handle.queue,
        created=handle.created,
        same_payload=handle.same_payload,
        replaced=handle.replaced,
    )


def _applied(queue: str, job: str, answer: Applied | Refused, done: str) -> JobOutcome:
    if isinstance(answer, Applied):
        return JobOutcome(job, True, answer.state)
    if answer.why is Refusal.MISSING:
        raise JobNotFoundError(f"no job {queue}/{job}: pruned, deleted or never there")
    raise WrongStateError(f"job {queue}/{job} is {answer.state} and cannot be {done}")
