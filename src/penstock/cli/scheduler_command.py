"""`penstock scheduler`: run schedules and maintenance without executing jobs."""

from contextlib import nullcontext
from typing import Annotated

import typer

from penstock.cli.command_context import CommandContext
from penstock.cli.options import setting
from penstock.cli.output import without_none
from penstock.maintenance.time_keeper import SWEEP, TICK, TimeKeeper
from penstock.settings import seconds
from penstock.telemetry import logs
from penstock.worker.options import MAX_TIME, check_seconds
from penstock.worker.pool import WorkerPool

App = Annotated[
    str | None,
    typer.Argument(
        metavar="MODULE:APP",
        help="App whose schedules to store and fire, such as shop.jobs:app [PENSTOCK_APP]",
        show_default=False,
    ),
]


async def scheduler(
    context: CommandContext,
    app: App = None,
    queue: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Maintain only this queue, such as mail; may be repeated",
            show_default="all queues of the tenant",
        ),
    ] = None,
    tick: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Interval at which queues are checked for due work, such as 5s",
            show_default=f"{TICK:g}s",
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
    log_level: Annotated[
        str | None,
        setting("worker.log_level", "Log level: debug, info, warning, error or critical", metavar="LEVEL"),
    ] = None,
    log_json: Annotated[
        bool | None, setting("worker.log_json", "Log one JSON object per line", "--log-json")
    ] = None,
) -> None:
    """Run schedules and maintenance: enqueue scheduled jobs, promote delayed ones, recover leases, prune.

    Maintains all queues of the tenant, or those that --queue names. The schedules of an app are stored first.
    Workers do the same for their own queues, and any number of workers and schedulers may run.
    """
    options = context.settings.worker
    logs.configure(json=options.log_json, level=options.log_level)
    every = TICK if tick is None else check_seconds("--tick", seconds("--tick", tick), 0.01, MAX_TIME)
    swept = options.sweep
    within = SWEEP if swept is None else check_seconds("--sweep", swept, 1, MAX_TIME)
    limits = without_none(promote_limit=options.promote_limit, recover_limit=options.recover_limit)
    names = [context.ref(each).name for each in queue or []] or None
    if context.app is not None:
        with context.app.using(context.make_store()) if context.settings.url else nullcontext():
            await context.app.scheduler(names, tick=every, sweep=within, **limits).run(handle_signals=True)
        return
    async with context.store() as store:
        keeper = TimeKeeper(store, context.tenant, names, tick=every, sweep=within, **limits)
        await WorkerPool([keeper]).run(handle_signals=True)
