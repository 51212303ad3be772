"""Flows, jobs that wait for other jobs: create, inspect and cancel them."""

from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from penstock.core.errors import FlowError, InvalidError
from penstock.core.flows import JobRef
from penstock.service import portions
from penstock.service.job_admission import sizes_of
from penstock.service.principal import Verb
from penstock.service.problems import BadRequestError, fault_of
from penstock.service.request import Request
from penstock.service.routing import Routes
from penstock.service.trace_headers import traced
from penstock.service.wire.flows import (
    ChildList,
    ChildView,
    FlowCancelled,
    FlowCreate,
    FlowCreated,
    FlowJobView,
)
from penstock.service.wire.jobs import Limit, raw
from penstock.tasks.flow import Flow, FlowNode

routes: Final = Routes()
MOST_CANCELLED: Final = 20_000
MOST_EDGES: Final = 20_000
"""Entries of all `after` lists of one flow."""


class ChildListQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A page of children. `after` is the `next` of the page before."""

    limit: Limit = 1_000
    after: Annotated[int, Meta(ge=0, le=1_000_000)] = 0


@routes.post("/v1/flows", Verb.ENQUEUE, status=201)
async def create_flow(request: Request, body: FlowCreate) -> FlowCreated:
    """Create jobs that wait for each other, in any queues of the tenant: all of them or none."""
    edges = sum(len(job.after) for job in body.jobs)
    if edges > MOST_EDGES:
        raise FlowError(f"the flow: found {edges} entries of `after`, wanted at most {MOST_EDGES}")
    for job in body.jobs:
        request.require(job.queue)
    sizes = sizes_of((job.queue, len(bytes(job.payload))) for job in body.jobs)
    async with request.enqueueing(sizes):
        flow, nodes = await _flow_of(request, body)
        handle = await request.client.send_flow(flow)
    return FlowCreated(
        {name: FlowJobView(handle[node].queue, handle[node].id) for name, node in nodes.items()}
    )


async def _flow_of(request: Request, body: FlowCreate) -> tuple[Flow, dict[str, FlowNode[Any]]]:
    """The flow, and its jobs by their names in the request."""
    flow = Flow(name=body.id)
    nodes: dict[str, FlowNode[Any]] = {}
    for place, job in enumerate(body.jobs):
        if job.name in nodes:
            raise FlowError(f"two jobs are called {job.name!r}")
        try:
            nodes[job.name] = flow.add(
                job.call(job.queue, **traced(request.headers, job.headers)), child_policy=job.child_policy
            )
        except InvalidError as error:
            raise BadRequestError(fault_of(error, f"/jobs/{place}")) from None
        await request.yielder.checkpoint()
    for job in body.jobs:
        for name in job.after:
            if name not in nodes:
                raise FlowError(f"{job.name!r} waits for {name!r}, which is not part of the flow")
            nodes[job.name].after(nodes[name])
        await request.yielder.checkpoint()
    return flow, nodes


@routes.get("/v1/queues/{queue}/jobs/{id}/children", Verb.READ)
async def list_children(request: Request, queue: str, id: str, query: ChildListQuery) -> ChildList:  # noqa: A002 (the word for it)
    """List the children of a job: the jobs that it waits or waited for."""
    await request.client.job(queue, id)
    most_bytes = request.service.limits.answer_bytes
    found = await portions.children(
        request.store.flows,
        request.ref(queue),
        id,
        after=query.after,
        limit=query.limit + 1,
        most_bytes=most_bytes,
    )
    page, views = found[: query.limit], list[ChildView]()
    for child in page:
        # The result is of another queue's job, which the token may not be for.
        result = raw(child.result) if request.may(child.ref.queue) else raw(None)
        ref = child.ref
        views.append(
            ChildView(queue=ref.queue, id=ref.id, done=child.is_done, state=child.state, result=result)
        )
        await request.yielder.checkpoint()
    size = sum(len(child.result or b"") for child in found)
    is_more = len(found) > len(page) or size >= most_bytes
    return ChildList(views, query.after + len(page) if is_more else None)


@routes.post("/v1/queues/{queue}/jobs/{id}/cancel-all", Verb.MANAGE)
async def cancel_flow(request: Request, queue: str, id: str) -> FlowCancelled:  # noqa: A002 (the word for it)
    """Cancel a job and every live job that it waits for, in the queues that the token can manage."""
    await request.client.job(queue, id)
    await request.client.carry(queue)
    order = [JobRef(queue, id)]
    seen = set(order)
    for ref in order:
        if len(order) >= MOST_CANCELLED:
            break
        # Parents before children, so that none of them fails over the cancel of its child.
        for child in await request.client.children(ref, results=False):
            if child.ref not in seen and request.may(child.ref.queue):
                seen.add(child.ref)
                order.append(child.ref)
    return FlowCancelled(await request.client.cancel_all(order))
