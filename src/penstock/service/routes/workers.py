"""Workers that hold leases, and on how many jobs."""

from datetime import datetime
from typing import Final

import msgspec

from penstock.service.principal import Verb
from penstock.service.request import Request
from penstock.service.routing import Routes
from penstock.service.wire.times import moment

routes: Final = Routes()


class WorkerView(msgspec.Struct, frozen=True):
    """A worker at one queue. `lease_until` is when the first of its leases ends unless it is renewed."""

    worker: str
    queue: str
    active: int
    lease_until: datetime


class WorkerList(msgspec.Struct, frozen=True):
    """Workers by queue and name."""

    workers: list[WorkerView]


@routes.get("/v1/workers", Verb.READ, is_costly=True)
async def list_workers(request: Request) -> WorkerList:
    """List the workers that hold leases. A worker that waits for jobs holds none, and is not listed."""
    out: list[WorkerView] = []
    for info in await request.queues():
        held: dict[str, list[int]] = {}
        for lease in await request.store.reads.leases(info.queue):
            held.setdefault(lease.worker, []).append(lease.deadline)
        out += [
            WorkerView(worker, info.queue.name, len(deadlines), moment(min(deadlines)))
            for worker, deadlines in sorted(held.items())
        ]
    return WorkerList(out)
