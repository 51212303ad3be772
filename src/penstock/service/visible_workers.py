"""The registered workers of a tenant, as far as a token may see them."""

import msgspec

from penstock.service.request import Request
from penstock.stores.values import WorkerEntry


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
