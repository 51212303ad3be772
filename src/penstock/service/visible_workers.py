"""The registered workers of a tenant, as far as a token may see them."""

import msgspec

from penstock.service.auth.scopes import ALL
from penstock.service.errors import ForbiddenError, NotFoundError
from penstock.service.request import Request
from penstock.stores.values import SeenVersion, WorkerEntry


async def visible_workers(request: Request, tenant: str) -> list[WorkerEntry]:
    """Those that serve a queue that the token is for, and of each only such queues and their jobs."""
    found = []
    for worker in await request.store.workers.list_workers(tenant):
        queues = {name: slots for name, slots in worker.queues.items() if request.may(name)}
        if queues:
            found.append(
                msgspec.structs.replace(
                    worker,
                    queues=queues,
                    busy={name: slots for name, slots in worker.busy.items() if request.may(name)},
                    done={name: done for name, done in worker.done.items() if request.may(name)},
                    jobs=tuple(job for job in worker.jobs if request.may(job.queue)),
                )
            )
    return found


async def require_worker(request: Request, tenant: str, name: str) -> WorkerEntry:
    """The worker of this name, for those who may do this in each of its queues.

    NotFoundError where the token is for none of them.
    """
    for worker in await request.store.workers.list_workers(tenant):
        if worker.name == name and any(request.may(queue) for queue in worker.queues):
            for queue in worker.queues:
                request.require(queue)
            if worker.more_queues and not request.may(ALL):
                raise ForbiddenError(
                    f"worker {name!r} serves more queues than are named: the token needs the scope for all"
                )
            return worker
    raise NotFoundError(f"no worker {name!r} is registered")


async def visible_versions(request: Request, tenant: str) -> list[SeenVersion]:
    """The versions that workers ran. They are of no queue: ForbiddenError unless the token is for all."""
    if not request.may(ALL):
        raise ForbiddenError("versions of workers are of no queue: wanted a scope for all queues")
    return await request.store.workers.list_versions(tenant)
