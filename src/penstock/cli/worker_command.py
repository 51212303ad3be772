"""`penstock worker`: claim jobs and run the handlers of an app."""

import asyncio
import gc
import logging
import os
import sys
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from penstock.cli.command_context import CommandContext
from penstock.cli.options import setting
from penstock.cli.output import without_none
from penstock.cli.worker_processes import stop_without, supervise, wants_supervisor
from penstock.core.errors import ConfigError, OptionError
from penstock.settings import WorkerSettings
from penstock.stores.registry import StoreKind, kind_of
from penstock.telemetry import logs

if TYPE_CHECKING:
    from penstock.app.pool import AppWorkers

App = Annotated[
    str | None,
    typer.Argument(
        metavar="MODULE:APP",
        help="App whose tasks the worker executes, such as shop.jobs:app [PENSTOCK_APP]",
        show_default=False,
    ),
]


_LOGGER: Final = logging.getLogger("penstock.worker")
EXIT_SECONDS: Final = 1.0
"""Time that asyncio tasks have to end after the workers have ended."""


async def worker(
    context: CommandContext,
    app: App = None,
    queues: Annotated[
        str | None,
        setting(
            "worker.queues",
            "Queues to serve with their slots, such as mail=50,web=5",
            default="all queues that the app declares",
            metavar="QUEUES",
        ),
    ] = None,
    concurrency: Annotated[
        str | None,
        setting(
            "worker.concurrency", "Slots of a queue that is named without a number", default="10", metavar="N"
        ),
    ] = None,
    lease: Annotated[
        str | None,
        setting(
            "worker.lease",
            "Duration of a lease, such as 2m; the worker renews it while the job runs",
            default="30s",
            metavar="TIME",
        ),
    ] = None,
    shutdown_timeout: Annotated[
        str | None,
        setting(
            "worker.shutdown_timeout",
            "Time that running jobs have to end when the worker is stopped, such as 1m",
            default="30s",
            metavar="TIME",
        ),
    ] = None,
    no_handler_after: Annotated[
        str | None,
        setting(
            "worker.no_handler_after",
            "Time after which a job whose task no worker knows becomes dead, such as 1h",
            default="24h",
            metavar="TIME",
        ),
    ] = None,
    stuck_after: Annotated[
        str | None,
        setting(
            "worker.stuck_after",
            "Time that a thread may run beyond its timeout before the worker process ends itself, such as 5m",
            default="the timeout of the job",
            metavar="TIME",
        ),
    ] = None,
    term_after: Annotated[
        str | None,
        setting(
            "worker.term_after",
            "Time between the request to stop a handler in a process and SIGTERM, such as 5s",
            default="1s",
            metavar="TIME",
        ),
    ] = None,
    kill_after: Annotated[
        str | None,
        setting(
            "worker.kill_after",
            "Time between SIGTERM and SIGKILL of the process of a handler, such as 2s",
            default="500ms",
            metavar="TIME",
        ),
    ] = None,
    claim_scan: Annotated[
        str | None,
        setting(
            "worker.claim_scan",
            "Maximum number of entries of deleted jobs that one claim on Redis skips, 1 to 10000",
            default="200",
            metavar="N",
        ),
    ] = None,
    promote_limit: Annotated[
        str | None,
        setting(
            "worker.promote_limit",
            "Maximum number of delayed jobs that one call makes pending, 1 to 10000",
            default="200",
            metavar="N",
        ),
    ] = None,
    recover_limit: Annotated[
        str | None,
        setting(
            "worker.recover_limit",
            "Maximum number of expired leases that one call recovers, 1 to 10000",
            default="200",
            metavar="N",
        ),
    ] = None,
    poll: Annotated[
        str | None,
        setting(
            "worker.poll",
            "Interval at which an idle queue is polled when no notification comes, such as 1s",
            default="5s",
            metavar="TIME",
        ),
    ] = None,
    sweep: Annotated[
        str | None,
        setting(
            "worker.sweep",
            "Interval at which every queue gets maintenance, even if nothing seems due, such as 10m",
            default="5m",
            metavar="TIME",
        ),
    ] = None,
    burst: Annotated[
        bool | None,
        setting(
            "worker.burst", "Stop when no job is claimable now; delayed jobs stay in the queue", "--burst"
        ),
    ] = None,
    executor: Annotated[
        str | None,
        setting(
            "worker.executor",
            "Executor of tasks that name none: inline or process",
            default="inline",
            metavar="EXECUTOR",
        ),
    ] = None,
    app_version: Annotated[
        str | None,
        setting(
            "worker.app_version",
            "Version of the app's code, such as 2026-11-19.3 or a commit; shown in the registry of workers",
            metavar="VERSION",
        ),
    ] = None,
    health_port: Annotated[
        str | None,
        setting(
            "worker.health_port",
            "Port of /health/live and /health/ready; 0 picks a free port",
            default="no port",
            metavar="PORT",
        ),
    ] = None,
    health_host: Annotated[
        str | None,
        setting(
            "worker.health_host", "Address of the health port, such as 0.0.0.0 in a container", metavar="HOST"
        ),
    ] = None,
    processes: Annotated[
        str | None,
        setting(
            "worker.processes",
            "Number of worker processes, or auto to add and remove them with the backlog",
            default="1",
            metavar="N",
        ),
    ] = None,
    min_processes: Annotated[
        str | None,
        setting(
            "worker.min_processes",
            "Fewest worker processes with --processes auto",
            "--min-processes",
            "--min",
            default="1",
            metavar="N",
        ),
    ] = None,
    max_processes: Annotated[
        str | None,
        setting(
            "worker.max_processes",
            "Most worker processes with --processes auto",
            "--max-processes",
            "--max",
            default="the number of processors",
            metavar="N",
        ),
    ] = None,
    target_wait: Annotated[
        str | None,
        setting(
            "worker.target_wait",
            "Time that a job may wait, such as 5s; --processes auto adds processes to keep to it",
            metavar="TIME",
        ),
    ] = None,
    backlog_per_slot: Annotated[
        str | None,
        setting(
            "worker.backlog_per_slot",
            "Waiting jobs per slot above which --processes auto adds processes",
            default="10",
            metavar="N",
        ),
    ] = None,
    max_jobs: Annotated[
        str | None,
        setting(
            "worker.max_jobs",
            "Number of jobs after which a worker process drains and ends; with --processes another starts",
            metavar="N",
        ),
    ] = None,
    max_memory: Annotated[
        str | None,
        setting(
            "worker.max_memory",
            "Resident memory, such as 512MiB, with which a worker process drains and ends; with --processes "
            "another starts",
            metavar="SIZE",
        ),
    ] = None,
    reload: Annotated[
        bool | None,
        setting(
            "worker.reload",
            "For development: start new worker processes when a Python file below the directory changes",
            "--reload",
        ),
    ] = None,
    supervised: Annotated[int | None, typer.Option("--supervised", hidden=True, metavar="PID")] = None,
    log_level: Annotated[
        str | None,
        setting("worker.log_level", "Log level: debug, info, warning, error or critical", metavar="LEVEL"),
    ] = None,
    log_json: Annotated[
        bool | None, setting("worker.log_json", "Log one JSON object per line", "--log-json")
    ] = None,
) -> None:
    """Claim and execute jobs until stopped by SIGTERM or Ctrl-C; a second signal stops running jobs too."""
    if context.app is None:
        raise ConfigError(
            "no app is named: give MODULE:APP, such as shop.jobs:app, set PENSTOCK_APP, "
            "or put app in penstock.toml"
        )
    options = context.settings.worker
    logs.configure(json=options.log_json, level=options.log_level, blocking=False)
    if supervised is None and wants_supervisor(options):
        if options.health_port is not None:
            raise OptionError(
                "health_port",
                options.health_port,
                "no port with --processes or --reload: each process has its own",
            )
        raise SystemExit(await supervise(context, context.app, options))
    # A store that the settings name takes precedence over the app's own.
    with context.app.using(context.make_store()) if context.settings.url else nullcontext():
        url = context.settings.url or context.app.url
        if url is not None and kind_of(url) is StoreKind.MEMORY:
            _LOGGER.warning(
                "memory:// exists in this process only: no other process can enqueue jobs for this worker"
            )
        if options.health_port is not None:
            from penstock.app.measuring import instrument_if_installed

            instrument_if_installed(context.app)
        workers = context.app.worker(**_options(options))
        with _watched(workers, options) if supervised is None else nullcontext():
            _freeze_modules()
            orphaned = (
                None if supervised is None else asyncio.create_task(stop_without(supervised, workers.stop))
            )
            await workers.run(handle_signals=True)
            if orphaned is not None:
                orphaned.cancel()
    await _cancel_remaining_tasks()


def _watched(workers: "AppWorkers", options: WorkerSettings) -> AbstractContextManager[None]:
    """Answer probes on the health port and tell systemd, where that is asked for."""
    from penstock.worker.health_server import HealthServer, watched

    if workers.health is None:
        return nullcontext()
    server = None
    if options.health_port is not None:
        server = HealthServer(workers.health, options.health_host, options.health_port)
        _LOGGER.info("health is served at http://%s:%d/health/live", options.health_host, server.port)
        if workers.exposition is not None:
            from penstock.app.measuring import add_metrics

            add_metrics(server, workers.exposition)
    return watched(workers.health, server)


def _freeze_modules() -> None:
    """Exclude loaded modules from garbage collection: otherwise every full collection visits all of them."""
    gc.collect()
    gc.freeze()


async def _cancel_remaining_tasks() -> None:
    """End the process even if a handler ignores its cancellation; its job was already released."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    if others and (await asyncio.wait(others, timeout=EXIT_SECONDS))[1]:
        logging.getLogger("penstock.worker").warning(
            "handlers ignored their cancellation: ending the process without them"
        )
        logging.shutdown()
        sys.stdout.flush()
        os._exit(0)


def _options(settings: WorkerSettings) -> dict[str, Any]:
    """The settings that are set, as options for the app; the app has defaults for the others."""
    return without_none(
        queues=settings.queues,
        concurrency=settings.concurrency,
        lease=settings.lease,
        shutdown_timeout=settings.shutdown_timeout,
        no_handler_after=settings.no_handler_after,
        stuck_after=settings.stuck_after,
        term_after=settings.term_after,
        kill_after=settings.kill_after,
        claim_scan=settings.claim_scan,
        promote_limit=settings.promote_limit,
        recover_limit=settings.recover_limit,
        poll=settings.poll,
        sweep=settings.sweep,
        burst=settings.burst,
        executor=settings.executor,
        app_version=settings.app_version,
        max_jobs=settings.max_jobs,
        max_memory=settings.max_memory,
    )
