"""Makes the workers and the scheduler of an app. Imported only when one is made."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from penstock.app.measuring import exposition_of
from penstock.app.place import place_of
from penstock.app.pool import AppWorkers
from penstock.app.preparing import UNUSABLE, Prepared, prepared
from penstock.app.restoring import Restorer
from penstock.client.client import unknown_queue
from penstock.core.errors import ConfigError, OptionError
from penstock.core.job import QueueRef
from penstock.maintenance.loop import MaintenanceLoop
from penstock.maintenance.time_keeper import TimeKeeper
from penstock.tasks.execution import Tier, default_tier
from penstock.worker.executors.process.host import Host
from penstock.worker.health import WorkerHealth
from penstock.worker.options import (
    DEFAULT_CONCURRENCY,
    MAX_CONCURRENCY,
    app_version,
    check_count,
    worker_name,
)
from penstock.worker.poller import CROWDED, QueuePoller
from penstock.worker.pool import WorkerPool
from penstock.worker.recycling import recycling_of
from penstock.worker.registration import Registration
from penstock.worker.renewer import LeaseRenewer
from penstock.worker.worker import Worker

if TYPE_CHECKING:
    from penstock.app.app import Penstock

_LOGGER: Final = logging.getLogger("penstock.worker")


def make_workers(
    app: "Penstock",
    queues: Mapping[str, int] | Sequence[str] | None,
    concurrency: int | None,
    options: dict[str, Any],
) -> AppWorkers:
    """The workers of `app.worker(…)`."""
    slots = _slots(app.queues if queues is None else queues)
    if not slots:
        raise ConfigError("nothing to work on: the app declares no queue")
    for name in slots:
        if name not in app.handles:
            raise unknown_queue(name, app.handles)
    if concurrency is not None:
        options["concurrency"] = concurrency
    app.registry.freeze()
    host = _process_host(app, options.get("executor"))
    renewer = LeaseRenewer(app.store)
    upkeep = MaintenanceLoop(app.store, is_held=renewer.holds)
    registered = {
        name: check_count("concurrency", number or concurrency or DEFAULT_CONCURRENCY, 1, MAX_CONCURRENCY)
        for name, number in slots.items()
    }
    options["name"] = worker_name(options.get("name"))
    registration = Registration(
        app.store,
        app.tenant,
        options["name"],
        registered,
        app.registry.names(),
        app_version=app_version(options.pop("app_version", None)),
    )
    recycling = recycling_of(registration, options.pop("max_jobs", None), options.pop("max_memory", None))
    workers: list[Any] = [
        Worker(
            app.store,
            app.handles[name].ref,
            app.registry,
            middleware=app.execution_middleware,
            host=host,
            upkeep=upkeep,
            registration=registration,
            renewer=renewer,
            observer=app.metrics,
            **(_given(lease=app.handles[name].lease) | options | _given(concurrency=number or None)),
        )
        for name, number in slots.items()
    ]
    if len(workers) > CROWDED and not options.get("burst"):
        workers = [
            QueuePoller(
                app.store, workers, upkeep=upkeep, registration=registration, renewer=renewer, host=host
            )
        ]
    first = partial(_prepare, app, list(slots))
    restorer = _restorer(app, list(slots))
    exposition = exposition_of(app, list(slots))
    health = WorkerHealth(registration, renewer)
    pool = AppWorkers(
        app,
        workers,
        first,
        restorer,
        host,
        declare=app.client.upkeep,
        recycling=recycling,
        exposition=exposition,
        health=health,
    )
    registration.stop = pool.stop
    return pool


def make_time_keeper(app: "Penstock", queues: Sequence[str] | None, options: Mapping[str, Any]) -> WorkerPool:
    """What `app.scheduler(…)` makes."""
    keeper = TimeKeeper(app.store, app.tenant, queues, **options)
    return AppWorkers(app, [keeper], partial(_prepare, app), _restorer(app, app.queues))


def _process_host(app: "Penstock", executor: object) -> Host | None:
    """What makes processes for handlers, where any of them wants one."""
    default = None if executor is None else default_tier("executor", executor)
    known = [app.registry.require(name) for name in app.registry.names()]
    tasks = [task for task in known if task.execution.tier(default) is not Tier.INLINE]
    if not tasks:
        return None

    return Host(place_of(app, tasks, app.reference))


async def _prepare(app: "Penstock", queues: Sequence[str] | None = None) -> Prepared:
    """Compare what the app declares with what is stored, and put its schedules."""
    # A worker that understands its queues otherwise than they are stored must not start.
    served = queues or app.queues
    names = [name for name in served if app.declarations[name] is not None]
    others = len(names) < len(served)
    waiting = await prepared({name: app.client.prepare([name]) for name in names}, others=others)
    try:
        await app.schedules.sync()
        await app.schedules.name_undeclared()
    except UNUSABLE as error:
        _LOGGER.warning("the schedules of the app cannot be put yet, retrying: %s", error)
        return Prepared(waiting, has_schedules=False)
    return Prepared(waiting)


def _restorer(app: "Penstock", queues: Sequence[str]) -> Restorer:
    declared = [name for name in queues if app.declarations[name] is not None]

    async def restore(lost: Sequence[QueueRef]) -> None:
        await app.client.prepare([queue.name for queue in lost if queue.name in declared])
        await app.schedules.sync()

    def watched() -> list[QueueRef]:
        return [QueueRef(app.tenant, name) for name in sorted({*declared, *app.schedules.queues()})]

    return Restorer(app.store, watched, restore)


def _slots(queues: Mapping[str, int] | Sequence[str]) -> dict[str, int]:
    """How many jobs of each queue run at once; 0 where nothing is said."""
    if isinstance(queues, str):
        return {queues: 0}
    if isinstance(queues, Mapping):
        return dict(queues)
    if not isinstance(queues, Iterable):
        raise OptionError("queues", queues, "names of queues, or slots by name such as {'mail': 50}")
    return dict.fromkeys(queues, 0)


def _given(**options: Any) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}
