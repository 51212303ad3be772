"""`penstock worker`: run the handlers of an app."""

import asyncio
import gc
import logging
import os
import sys
from contextlib import nullcontext
from typing import Annotated, Any, Final

import typer

from penstock.cli.desk import Desk, setting
from penstock.cli.output import without_none
from penstock.core.errors import ConfigError
from penstock.settings import WorkerSettings
from penstock.telemetry import logs

App = Annotated[
    str | None,
    typer.Argument(metavar="MODULE:APP", help="Where the app is [PENSTOCK_APP]", show_default=False),
]


LEAVE: Final = 1.0
"""Seconds that what still runs in the event loop has to end when the workers have."""


async def worker(
    desk: Desk,
    app: App = None,
    queues: Annotated[
        str | None, setting("worker.queues", "Queues with their slots, such as mail=50,web=5")
    ] = None,
    concurrency: Annotated[
        str | None, setting("worker.concurrency", "Slots of queues without a number", metavar="N")
    ] = None,
    lease: Annotated[
        str | None, setting("worker.lease", "How long a lease is, such as 30s", metavar="TIME")
    ] = None,
    shutdown_timeout: Annotated[
        str | None, setting("worker.shutdown_timeout", "How long to drain when told to stop", metavar="TIME")
    ] = None,
    no_handler_after: Annotated[
        str | None,
        setting(
            "worker.no_handler_after",
            "How long a job may wait for a worker that knows its task before it is dead, such as 24h",
            metavar="TIME",
        ),
    ] = None,
    stuck_after: Annotated[
        str | None,
        setting(
            "worker.stuck_after",
            "How long a thread may run on after its timeout before the worker ends itself, such as 5m",
            metavar="TIME",
        ),
    ] = None,
    term_after: Annotated[
        str | None,
        setting(
            "worker.term_after",
            "How long a handler in a process may run on once told to stop, before SIGTERM, such as 1s",
            metavar="TIME",
        ),
    ] = None,
    kill_after: Annotated[
        str | None,
        setting(
            "worker.kill_after",
            "How long its process may run on after SIGTERM, such as 500ms",
            metavar="TIME",
        ),
    ] = None,
    claim_scan: Annotated[
        str | None,
        setting(
            "worker.claim_scan",
            "Entries of jobs that are gone which one claim passes over, 1 to 10000",
            metavar="N",
        ),
    ] = None,
    promote_limit: Annotated[
        str | None,
        setting("worker.promote_limit", "Delayed jobs that one call promotes, 1 to 10000", metavar="N"),
    ] = None,
    recover_limit: Annotated[
        str | None,
        setting("worker.recover_limit", "Expired leases that one call recovers, 1 to 10000", metavar="N"),
    ] = None,
    poll: Annotated[
        str | None, setting("worker.poll", "How often to look when nothing wakes it", metavar="TIME")
    ] = None,
    sweep: Annotated[
        str | None,
        setting("worker.sweep", "Time in which every queue is visited once for upkeep", metavar="TIME"),
    ] = None,
    burst: Annotated[
        bool | None, setting("worker.burst", "Stop when nothing is claimable", "--burst")
    ] = None,
    executor: Annotated[
        str | None,
        setting(
            "worker.executor", "Where handlers run that do not say: inline or process", metavar="EXECUTOR"
        ),
    ] = None,
    log_level: Annotated[
        str | None, setting("worker.log_level", "debug, info, warning, error or critical", metavar="LEVEL")
    ] = None,
    log_json: Annotated[bool | None, setting("worker.log_json", "Log JSON lines", "--log-json")] = None,
) -> None:
    """Claim and execute jobs until told to stop (SIGTERM or Ctrl-C; twice to hurry)."""
    if desk.app is None:
        raise ConfigError(
            "no app is named: give MODULE:APP, such as shop.jobs:app, set PENSTOCK_APP, "
            "or put app in penstock.toml"
        )
    options = desk.settings.worker
    logs.configure(json=options.log_json, level=options.log_level, waits=False)
    # A store named on the command line, in the environment or in the file goes before the app's own.
    with desk.app.using(desk.make_store()) if desk.settings.url else nullcontext():
        workers = desk.app.worker(**_options(options))
        _spare_the_collector()
        await workers.run(handle_signals=True)
    await _leave()


def _spare_the_collector() -> None:
    """Leave out what lasts as long as the process: else every full collection walks through all modules."""
    gc.collect()
    gc.freeze()


async def _leave() -> None:
    """End the process also where a handler swallows every cancel: its job was given back already."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    if others and (await asyncio.wait(others, timeout=LEAVE))[1]:
        logging.getLogger("penstock.worker").warning("handlers do not stop: the process ends without them")
        logging.shutdown()
        sys.stdout.flush()
        os._exit(0)


def _options(settings: WorkerSettings) -> dict[str, Any]:
    """What was said, for the app; what was not said is the app's to choose."""
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
    )
