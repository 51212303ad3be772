"""Flows: jobs that wait for jobs, created whole, looked at and cancelled."""

from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from penstock.core.errors import FlowError, InvalidError
from penstock.core.flows import JobRef
from penstock.service import portions
from penstock.service.ask import Ask
from penstock.service.job_admission import sizes_of
from penstock.service.principal import Verb
from penstock.service.problems import BadRequestError, fault_of
from penstock.service.routing import Routes
from penstock.service.wire.flows import (
    ChildList,
    ChildView,
    FlowCancelled,
    FlowMade,
    FlowWish,
    Place,
)
from penstock.service.wire.jobs import Limit, raw
from penstock.tasks.flow import Flow, Node

routes: Final = Routes()
MOST_CANCELLED: Final = 20_000
MOST_EDGES: Final = 20_000
"""Entries of all `after` lists of one flow."""


class ChildQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which children. `after` is the `next` of the page before."""

    limit: Limit = 1_000
    after: Annotated[int, Meta(ge=0, le=1_000_000)] = 0


@routes.post("/v1/flows", Verb.ENQUEUE, status=201)
async def create_flow(ask: Ask, body: FlowWish) -> FlowMade:
    """Create jobs that wait for each other, over any queues of the tenant: all of them, or none."""
    edges = sum(len(wish.after) for wish in body.jobs)
    if edges > MOST_EDGES:
        raise FlowError(f"the flow: found {edges} entries of `after`, wanted at most {MOST_EDGES}")
    for wish in body.jobs:
        ask.require(wish.queue)
    sizes = sizes_of((wish.queue, len(bytes(wish.payload))) for wish in body.jobs)
    async with ask.enqueueing(sizes):
        flow, nodes = await _flow_of(ask, body)
        handle = await ask.client.send_flow(flow)
    return FlowMade({name: Place(handle[node].queue, handle[node].id) for name, node in nodes.items()})


async def _flow_of(ask: Ask, body: FlowWish) -> tuple[Flow, dict[str, Node[Any]]]:
    """The flow, and its jobs by their names in the request."""
    flow = Flow(name=body.id)
    nodes: dict[str, Node[Any]] = {}
    for place, wish in enumerate(body.jobs):
        if wish.name in nodes:
            raise FlowError(f"two jobs are called {wish.name!r}")
        try:
            nodes[wish.name] = flow.add(wish.call(wish.queue), child_policy=wish.child_policy)
        except InvalidError as error:
            raise BadRequestError(fault_of(error, f"/jobs/{place}")) from None
        await ask.yielder.checkpoint()
    for wish in body.jobs:
        for name in wish.after:
            if name not in nodes:
                raise FlowError(f"{wish.name!r} waits for {name!r}, which is not part of the flow")
            nodes[wish.name].after(nodes[name])
        await ask.yielder.checkpoint()
    return flow, nodes


@routes.get("/v1/queues/{queue}/jobs/{id}/children", Verb.READ)
async def list_children(ask: Ask, queue: str, id: str, query: ChildQuery) -> ChildList:  # noqa: A002 (the word for it)
    """List the jobs that this one waits or waited for."""
    await ask.client.job(queue, id)
    most_bytes = ask.service.limits.answer_bytes
    found = await portions.children(
        ask.store, ask.ref(queue), id, after=query.after, limit=query.limit + 1, most_bytes=most_bytes
    )
    page, views = found[: query.limit], list[ChildView]()
    for child in page:
        # The result is of another queue's job, which the token may not be for.
        result = raw(child.result) if ask.may(child.ref.queue) else raw(None)
        ref = child.ref
        views.append(
            ChildView(queue=ref.queue, id=ref.id, done=child.is_done, state=child.state, result=result)
        )
        await ask.yielder.checkpoint()
    size = sum(len(child.result or b"") for child in found)
    is_more = len(found) > len(page) or size >= most_bytes
    return ChildList(views, query.after + len(page) if is_more else None)


@routes.post("/v1/queues/{queue}/jobs/{id}/cancel-all", Verb.MANAGE)
async def cancel_flow(ask: Ask, queue: str, id: str) -> FlowCancelled:  # noqa: A002 (the word for it)
    """Cancel a job and every live job that it waits for, as far as the token goes."""
    await ask.client.job(queue, id)
    await ask.client.carry(queue)
    order = [JobRef(queue, id)]
    seen = set(order)
    for ref in order:
        if len(order) >= MOST_CANCELLED:
            break
        # Parents before children, so that none of them fails over the cancel of its child.
        for child in await ask.client.children(ref, results=False):
            if child.ref not in seen and ask.may(child.ref.queue):
                seen.add(child.ref)
                order.append(child.ref)
    return FlowCancelled(await ask.client.cancel_all(order))
