"""`penstock scheduler`: keep time without running a job."""

from contextlib import nullcontext
from typing import Annotated

import typer

from penstock.cli.desk import Desk, setting
from penstock.cli.output import without_none
from penstock.cli.worker import App
from penstock.scheduler.keeper import SWEEP, TICK, TimeKeeper
from penstock.settings import seconds
from penstock.telemetry import logs
from penstock.worker.options import MAX_TIME, check_seconds
from penstock.worker.pool import WorkerPool


async def scheduler(
    desk: Desk,
    app: App = None,
    queue: Annotated[
        list[str] | None, typer.Option(help="Only this queue; may be repeated", show_default="all there are")
    ] = None,
    tick: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="How often to look after the queues", show_default=f"{TICK:g}s"),
    ] = None,
    sweep: Annotated[
        str | None,
        setting("worker.sweep", "Time in which every queue is visited once for upkeep", metavar="TIME"),
    ] = None,
    promote_limit: Annotated[
        str | None,
        setting("worker.promote_limit", "Delayed jobs that one call promotes, 1 to 10000", metavar="N"),
    ] = None,
    recover_limit: Annotated[
        str | None,
        setting("worker.recover_limit", "Expired leases that one call recovers, 1 to 10000", metavar="N"),
    ] = None,
    log_level: Annotated[
        str | None, setting("worker.log_level", "debug, info, warning, error or critical", metavar="LEVEL")
    ] = None,
    log_json: Annotated[bool | None, setting("worker.log_json", "Log JSON lines", "--log-json")] = None,
) -> None:
    """Fire schedules, promote delayed jobs, recover and prune, also where no worker runs.

    Without an app it serves all queues in the store; with one, its schedules are put there first. Workers do
    the same for their own queues, and any number of both may run.
    """
    options = desk.settings.worker
    logs.configure(json=options.log_json, level=options.log_level)
    every = TICK if tick is None else check_seconds("--tick", seconds("--tick", tick), 0.01, MAX_TIME)
    swept = options.sweep
    within = SWEEP if swept is None else check_seconds("--sweep", swept, 1, MAX_TIME)
    said = without_none(promote_limit=options.promote_limit, recover_limit=options.recover_limit)
    names = [desk.ref(each).name for each in queue or []] or None
    if desk.app is not None:
        with desk.app.using(desk.make_store()) if desk.settings.url else nullcontext():
            await desk.app.scheduler(names, tick=every, sweep=within, **said).run(handle_signals=True)
        return
    async with desk.store() as store:
        keeper = TimeKeeper(store, desk.tenant, names, tick=every, sweep=within, **said)
        await WorkerPool([keeper]).run(handle_signals=True)
