"""Workers: those that are registered and others that hold leases; orders for them; versions of their code."""

from typing import Final

from penstock.service.errors import NotFoundError
from penstock.service.principal import Verb
from penstock.service.request import Request
from penstock.service.routing import Routes
from penstock.service.visible_workers import require_worker, visible_versions, visible_workers
from penstock.service.wire.times import moment
from penstock.service.wire.workers import (
    WorkerLeasesView,
    WorkerList,
    WorkerVersionList,
    WorkerView,
    version_view,
    worker_view,
)
from penstock.stores.values import OrderKind

routes: Final = Routes()


@routes.get("/v1/workers", Verb.READ, is_costly=True)
async def list_workers(request: Request) -> WorkerList:
    """List the registered workers, idle ones too, and those that hold leases without being registered."""
    leases = await _leases(request)
    views = [
        worker_view(each, leases.pop(each.name, []))
        for each in await visible_workers(request, request.tenant)
    ]
    views += [WorkerView(worker=name, registered=False, leases=held) for name, held in leases.items()]
    return WorkerList(sorted(views, key=lambda view: view.worker))


@routes.get("/v1/workers/{worker}", Verb.READ, is_costly=True)
async def show_worker(request: Request, worker: str) -> WorkerView:
    """Show a worker."""
    listed: WorkerList = await list_workers(request)
    for view in listed.workers:
        if view.worker == worker:
            return view
    raise NotFoundError(f"no worker {worker!r} is registered or holds a lease")


@routes.post("/v1/workers/{worker}/drain", Verb.MANAGE, status=202)
async def drain_worker(request: Request, worker: str) -> None:
    """Order a worker to claim no more, finish the jobs that run, and end.

    The token needs the scope for each of the worker's queues.
    """
    await _order(request, worker, OrderKind.DRAIN)


@routes.post("/v1/workers/{worker}/stop", Verb.MANAGE, status=202)
async def stop_worker(request: Request, worker: str) -> None:
    """Order a worker to end at once: its handlers are told to stop, and their jobs are given back.

    The token needs the scope for each of the worker's queues.
    """
    await _order(request, worker, OrderKind.STOP)


@routes.get("/v1/worker-versions", Verb.READ)
async def list_worker_versions(request: Request) -> WorkerVersionList:
    """List the versions of code that workers ran in the last 30 days, and when each was first seen.

    The token needs the scope for all queues.
    """
    return WorkerVersionList([version_view(each) for each in await visible_versions(request, request.tenant)])


async def _order(request: Request, name: str, order: OrderKind) -> None:
    await require_worker(request, request.tenant, name)
    by = request.principal.subject
    if not await request.store.workers.order_worker(request.tenant, name, order, by=by):
        raise NotFoundError(f"no worker {name!r} that takes orders is registered")
    await request.note(f"worker.{order}", name)


async def _leases(request: Request) -> dict[str, list[WorkerLeasesView]]:
    """By worker, the leases that it holds in each queue that the token may see."""
    found: dict[str, list[WorkerLeasesView]] = {}
    for info in await request.queues():
        held: dict[str, list[int]] = {}
        for lease in await request.store.reads.leases(info.queue):
            held.setdefault(lease.worker, []).append(lease.deadline)
        for worker, deadlines in held.items():
            found.setdefault(worker, []).append(
                WorkerLeasesView(info.queue.name, len(deadlines), moment(min(deadlines)))
            )
    return found
