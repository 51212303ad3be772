"""Jobs: create one or many, look, list, cancel, retry, delete, wait for the result, ask why."""

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
from penstock.explain.facts import gather
from penstock.explain.sentences import explain
from penstock.service.answers import Answer
from penstock.service.ask import Ask
from penstock.service.job_admission import sizes_of
from penstock.service.limits import LONGEST_WAIT
from penstock.service.paging import after_of, states_of
from penstock.service.principal import Verb
from penstock.service.problems import fault_of, problem_of
from penstock.service.routing import Routes
from penstock.service.selecting import listed
from penstock.service.wire.filters import JobMatch
from penstock.service.wire.jobs import (
    Explanation,
    JobPage,
    JobView,
    JobWish,
    Limit,
    Made,
    MadeOrNot,
    ManyMade,
    ManyWishes,
    Outcome,
    ResultView,
    job_view,
    raw,
)
from penstock.stores.values import Page
from penstock.tasks.call import Call
from penstock.tasks.handle import JobHandle

routes: Final = Routes()
IDEMPOTENCY_KEY: Final = "idempotency-key"
Wait = Annotated[float, Meta(ge=0, le=LONGEST_WAIT, description="Seconds to wait at most")]


class ListQuery(JobMatch, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which jobs. `after` is the `next` of the page before."""

    state: str | None = None
    """Some states, joined by commas, such as pending,delayed."""
    limit: Limit = 100
    after: str | None = None
    payload: bool = False
    result: bool = False


class ShowQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What of a job to show beside its record."""

    payload: bool = False
    result: bool = False


class WaitQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long to wait."""

    wait: Wait = 0.0


@routes.post("/v1/queues/{queue}/jobs", Verb.ENQUEUE, status=201, also=(200,), idempotent=True)
async def create_job(ask: Ask, queue: str, body: JobWish) -> Answer[Made]:
    """Create a job; when this is answered it is durable.

    201 when it was created, 200 when an earlier job stands for it.
    """
    async with ask.enqueueing({queue: [len(bytes(body.payload))]}):
        call = body.call(queue, **_idempotency(ask, body))
        made = _made(await ask.client.send(call))
    return Answer(made, 201 if made.created else 200, {"location": f"/v1/queues/{queue}/jobs/{made.id}"})


@routes.post("/v1/jobs", Verb.ENQUEUE)
async def create_jobs(ask: Ask, body: ManyWishes) -> ManyMade:
    """Create many jobs, in any queues of the tenant; each has an outcome of its own."""
    outcomes: dict[int, MadeOrNot] = {}
    for place, wish in enumerate(body.jobs):
        try:
            ask.require(wish.queue)
        except PenstockError as error:
            outcomes[place] = MadeOrNot(problem=problem_of(error)[0])
    allowed = {place: wish for place, wish in enumerate(body.jobs) if place not in outcomes}
    sizes = sizes_of((wish.queue, len(bytes(wish.payload))) for wish in allowed.values())
    async with ask.enqueueing(sizes):
        calls: dict[int, Call[Any]] = {}
        for place, wish in allowed.items():
            try:
                calls[place] = wish.call(wish.queue)
            except InvalidError as error:
                fault = fault_of(error, f"/jobs/{place}")
                problem = msgspec.structs.replace(problem_of(error)[0], errors=(fault,))
                outcomes[place] = MadeOrNot(problem=problem)
            await ask.yielder.checkpoint()
        answers = await _send_many(ask, list(calls.values()))
    for place, sent in zip(calls, answers, strict=True):
        if isinstance(sent, PenstockError):
            outcomes[place] = MadeOrNot(problem=problem_of(sent)[0])
        else:
            outcomes[place] = MadeOrNot(_made(sent))
    return ManyMade([outcomes[place] for place in range(len(body.jobs))])


@routes.get("/v1/queues/{queue}/jobs", Verb.READ)
async def list_jobs(ask: Ask, queue: str, query: ListQuery) -> JobPage:
    """List jobs, the newest first: by ending where only ended ones are asked for."""
    info = await ask.queue(queue)
    page = await listed(
        ask,
        info.queue,
        query.filter(states_of(query.state), is_query=True),
        limit=query.limit,
        after=after_of(query.after),
        payloads=query.payload,
        results=query.result,
    )
    return await page_view(ask, page, payload=query.payload, result=query.result)


@routes.get("/v1/queues/{queue}/jobs/{id}", Verb.READ)
async def show_job(ask: Ask, queue: str, id: str, query: ShowQuery) -> JobView:  # noqa: A002 (the word for it)
    """Show a job."""
    return job_view(await ask.client.job(queue, id), payload=query.payload, result=query.result)


@routes.delete("/v1/queues/{queue}/jobs/{id}", Verb.MANAGE)
async def delete_job(ask: Ask, queue: str, id: str) -> Outcome:  # noqa: A002 (the word for it)
    """Remove a job that is not running."""
    info = await ask.queue(queue)
    (answer,) = await ask.store.delete(info.queue, [id])
    return _applied(queue, id, answer, "deleted")


@routes.post("/v1/queues/{queue}/jobs/{id}/cancel", Verb.MANAGE)
async def cancel_job(ask: Ask, queue: str, id: str) -> Outcome:  # noqa: A002 (the word for it)
    """Cancel a job: what waits is taken back, what runs is asked to stop."""
    await ask.queue(queue)
    state = await ask.client.cancel(queue, id)
    return Outcome(id, True, state, cancel_requested=state is State.ACTIVE)


@routes.post("/v1/queues/{queue}/jobs/{id}/retry", Verb.MANAGE)
async def retry_job(ask: Ask, queue: str, id: str) -> Outcome:  # noqa: A002 (the word for it)
    """Run a dead, failed or cancelled job again, with all its attempts."""
    info = await ask.queue(queue)
    async with ask.redriving(info.queue, 1):
        (answer,) = await ask.store.redrive(info.queue, [id])
    return _applied(queue, id, answer, "retried")


@routes.get("/v1/queues/{queue}/jobs/{id}/explain", Verb.READ)
async def explain_job(ask: Ask, queue: str, id: str) -> Explanation:  # noqa: A002 (the word for it)
    """Say why a job is not running, in sentences."""
    facts = await gather(ask.store, await ask.client.job(queue, id), ask.may)
    return Explanation(id, queue, facts.job.state, explain(facts))


@routes.get("/v1/queues/{queue}/jobs/{id}/result", Verb.READ, also=(202,))
async def job_result(ask: Ask, queue: str, id: str, query: WaitQuery) -> Answer[ResultView]:  # noqa: A002
    """Wait until the job has ended and say how; 202 when it has not within the time."""
    job = await ask.client.job(queue, id)
    if not job.state.is_ended and query.wait:
        async with ask.held():
            job = await ask.until_over(_ended(ask, job, query.wait)) or job
    view = ResultView(
        id=id,
        queue=queue,
        state=job.state,
        is_ended=job.state.is_ended,
        result=raw(job.result),
        reason=job.reason,
        error=job.error,
    )
    return Answer(view, 200 if view.is_ended else 202)


async def page_view(ask: Ask, page: Page, *, payload: bool, result: bool = False) -> JobPage:
    """The page for the wire."""
    jobs: list[JobView] = []
    for job in page.jobs:
        jobs.append(job_view(job, payload=payload, result=result))
        await ask.yielder.checkpoint()
    return JobPage(jobs, page.next)


async def _ended(ask: Ask, job: Job, wait: float) -> Job:
    try:
        return await ask.client.ended(job.queue, job.id, wait)
    except ResultTimeoutError:
        return await ask.client.job(job.queue, job.id)


def _idempotency(ask: Ask, wish: JobWish) -> dict[str, str]:
    """What the header says, which may stand instead of the field, or say the same."""
    given = ask.headers.get(IDEMPOTENCY_KEY)
    if given is None:
        return {}
    # The draft of the header has it as a quoted text; many send it bare.
    key = given[1:-1] if len(given) > 1 and given[0] == given[-1] == '"' else given
    if wish.idempotency_key not in (msgspec.UNSET, key):
        raise OptionError("idempotency_key", wish.idempotency_key, "what the header Idempotency-Key says")
    return {"idempotency_key": key}


async def _send_many(ask: Ask, calls: list[Call[Any]]) -> list[JobHandle[Any] | PenstockError]:
    try:
        return await ask.client.send_many(calls)
    except InvalidError:
        # One that its queue cannot have, as for the lack of a key, would keep out all others.
        return await asyncio.gather(*(_sent(ask, call) for call in calls))


async def _sent(ask: Ask, call: Call[Any]) -> JobHandle[Any] | PenstockError:
    try:
        return await ask.client.send(call)
    except PenstockError as error:
        return error


def _made(handle: JobHandle[Any]) -> Made:
    return Made(
        id=handle.id,
        queue=handle.queue,
        created=handle.created,
        same_payload=handle.same_payload,
        replaced=handle.replaced,
    )


def _applied(queue: str, job: str, answer: Applied | Refused, done: str) -> Outcome:
    if isinstance(answer, Applied):
        return Outcome(job, True, answer.state)
    if answer.why is Refusal.MISSING:
        raise JobNotFoundError(f"no job {queue}/{job}: pruned, deleted or never there")
    raise WrongStateError(f"job {queue}/{job} is {answer.state} and cannot be {done}")
