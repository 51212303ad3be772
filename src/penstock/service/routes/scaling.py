"""Scaling of workers: what autoscalers decided, and how many workers a queue needs."""

from typing import Final

from penstock.core.scaling import Rules, workers_needed
from penstock.core.states import State
from penstock.service.auth.scopes import ALL
from penstock.service.errors import ForbiddenError
from penstock.service.principal import Verb
from penstock.service.request import Request
from penstock.service.routing import Routes
from penstock.service.wire.scaling import (
    ScalingDecisionList,
    ScalingDecisionListQuery,
    WorkerNeedQuery,
    WorkerNeedView,
    decision_view,
)
from penstock.worker.processes.scaling_log import ScalingLog

routes: Final = Routes()


@routes.get("/v1/queues/{queue}/workers-needed", Verb.READ)
async def show_worker_need(request: Request, queue: str, query: WorkerNeedQuery) -> WorkerNeedView:
    """Show how many workers a queue needs now, for autoscalers such as KEDA.

    A paused queue needs workers for its running jobs only.
    """
    info = await request.queue(queue)
    counts = await request.store.reads.counts(info.queue)
    backlog = 0 if info.pause is not None else counts.get(State.PENDING, 0)
    active = counts.get(State.ACTIVE, 0)
    rules = Rules(least=1, most=query.max, backlog_per_slot=query.backlog_per_slot)
    needed = workers_needed(rules, backlog=backlog, active=active, slots=query.slots)
    return WorkerNeedView(max(min(query.min, query.max), needed), backlog, active)


@routes.get("/v1/scaling-decisions", Verb.READ)
async def list_scaling_decisions(request: Request, query: ScalingDecisionListQuery) -> ScalingDecisionList:
    """List what autoscalers of worker processes decided in the last 30 days, and why.

    The token needs the scope for all queues.
    """
    if not request.may(ALL):
        raise ForbiddenError("decisions of autoscalers are of no queue: wanted a scope for all queues")
    entries = await ScalingLog(request.store, request.tenant).latest(query.limit)
    return ScalingDecisionList([decision_view(each) for each in entries])
