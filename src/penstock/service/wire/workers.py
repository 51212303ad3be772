"""Workers as they go out: what the registry knows of them, and the leases that they hold."""

from datetime import datetime

import msgspec

from penstock.service.wire.times import at, moment
from penstock.stores.values import SeenVersion, WorkerEntry


class WorkerLeasesView(msgspec.Struct, frozen=True):
    """The leases of a worker in one queue. `lease_until` is when the first ends unless it is renewed."""

    queue: str
    active: int
    lease_until: datetime


class WorkerJobView(msgspec.Struct, frozen=True):
    """A job that a worker executes, since it claimed it."""

    queue: str
    id: str
    task: str
    attempt: int
    since: datetime


class WorkerView(msgspec.Struct, frozen=True, kw_only=True):
    """A worker. One that is not `registered`, such as a client that claims over HTTP, has `leases` only.

    `queues` are its slots by queue, `busy` those that are taken; of very many queues, tasks and jobs only
    some are named, and `more_queues`, `more_tasks` and `more_jobs` are how many others there are. `version`
    is Penstock's, `app_version` the app's own. `memory` is in bytes, `loop_lag` in seconds. The worker
    renewed its entry at `seen_at`.
    """

    worker: str
    registered: bool
    leases: list[WorkerLeasesView]
    state: str | None = None
    host: str | None = None
    pid: int | None = None
    version: str | None = None
    app_version: str | None = None
    slots: int | None = None
    taken: int | None = None
    queues: dict[str, int] = {}
    busy: dict[str, int] = {}
    tasks: list[str] = []
    jobs: list[WorkerJobView] = []
    more_queues: int = 0
    more_tasks: int = 0
    more_jobs: int = 0
    memory: int | None = None
    loop_lag: float | None = None
    started_at: datetime | None = None
    polled_at: datetime | None = None
    seen_at: datetime | None = None


class WorkerList(msgspec.Struct, frozen=True):
    """Workers by name."""

    workers: list[WorkerView]


class WorkerVersionView(msgspec.Struct, frozen=True):
    """A version of the code that workers ran: `version` of Penstock, `app_version` of the app."""

    app_version: str | None
    version: str
    first_seen: datetime
    last_seen: datetime


class WorkerVersionList(msgspec.Struct, frozen=True):
    """Versions, the newest first."""

    versions: list[WorkerVersionView]


def worker_view(worker: WorkerEntry, leases: list[WorkerLeasesView]) -> WorkerView:
    """A registered worker."""
    return WorkerView(
        worker=worker.name,
        registered=True,
        leases=leases,
        state=worker.state,
        host=worker.host,
        pid=worker.pid,
        version=worker.version,
        app_version=worker.app_version,
        slots=worker.slots,
        taken=worker.taken,
        queues=worker.queues,
        busy=worker.busy,
        tasks=list(worker.tasks),
        jobs=[
            WorkerJobView(each.queue, each.id, each.task, each.attempt, moment(each.since))
            for each in worker.jobs
        ],
        more_queues=worker.more_queues,
        more_tasks=worker.more_tasks,
        more_jobs=worker.more_jobs,
        memory=worker.memory,
        loop_lag=None if worker.loop_lag_ms is None else worker.loop_lag_ms / 1000,
        started_at=at(worker.started_at),
        polled_at=at(worker.polled_at),
        seen_at=moment(worker.renewed_at),
    )


def version_view(seen: SeenVersion) -> WorkerVersionView:
    """A version that was seen."""
    return WorkerVersionView(seen.app_version, seen.version, moment(seen.first_seen), moment(seen.last_seen))
