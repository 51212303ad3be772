"""`penstock worker --processes`: a supervisor of worker processes, with their number fixed or scaled."""

import asyncio
import logging
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Final

from penstock.app.app import Penstock
from penstock.cli.code_reload import refuse_missing_watcher, reload_on_change
from penstock.cli.command_context import CommandContext
from penstock.cli.loading import refuse_memory
from penstock.cli.output import without_none
from penstock.core.errors import OptionError
from penstock.core.scaling import Rules, check_rules
from penstock.settings import WorkerSettings
from penstock.worker.executors.stopping import StopDelays
from penstock.worker.options import DEFAULT_CONCURRENCY, DEFAULT_SHUTDOWN_TIMEOUT
from penstock.worker.processes.scaler import ProcessScaler
from penstock.worker.processes.supervisor import Supervisor

_LOGGER: Final = logging.getLogger("penstock.worker")
PARENT_CHECK: Final = 1.0
"""Seconds between two looks of a supervised process whether its supervisor is still there."""


def wants_supervisor(options: WorkerSettings) -> bool:
    """True where the options ask for more than this process."""
    given = {
        "--min": options.min_processes,
        "--max": options.max_processes,
        "--target-wait": options.target_wait,
        "--backlog-per-slot": options.backlog_per_slot,
    }
    if options.processes != 0:
        for flag, value in given.items():
            if value is not None:
                raise OptionError(flag, value, "it with --processes auto")
    return options.processes not in (None, 1) or options.reload


async def supervise(context: CommandContext, app: Penstock, options: WorkerSettings) -> int:
    """Run worker processes until stopped; the exit code."""
    refuse_memory(context.make_store())
    if options.reload:
        refuse_missing_watcher()
    rules = _rules(options)
    command = [sys.executable, "-P", "-m", "penstock.cli", *sys.argv[1:], "--supervised", str(os.getpid())]
    delays = StopDelays(**without_none(term_after=options.term_after, kill_after=options.kill_after))
    drain = DEFAULT_SHUTDOWN_TIMEOUT if options.shutdown_timeout is None else options.shutdown_timeout
    supervisor = Supervisor(
        command,
        rules.least if options.processes == 0 else max(1, options.processes or 1),
        stop_timeout=drain + delays.total,
        is_burst=options.burst,
    )
    async with AsyncExitStack() as stack:
        if options.processes == 0:
            scaler = ProcessScaler(context.make_store(), app.tenant, _slots(app, options), supervisor, rules)
            await stack.enter_async_context(_beside(scaler.run))
        if options.reload:
            reference = context.settings.app or ""
            await stack.enter_async_context(_beside(lambda: reload_on_change(reference, supervisor)))
        return await supervisor.run()


async def stop_without(parent: int, stop: Callable[[], None]) -> None:
    """Call `stop` once the supervisor that started this process is gone."""
    while os.getppid() == parent:  # noqa: ASYNC110 (the system notifies of nothing)
        await asyncio.sleep(PARENT_CHECK)
    _LOGGER.warning("the supervisor of this worker process is gone: the process stops")
    stop()


def _rules(options: WorkerSettings) -> Rules:
    defaults = Rules()
    return check_rules(
        Rules(
            least=options.min_processes or defaults.least,
            most=options.max_processes or max(options.min_processes or 1, os.cpu_count() or 1),
            backlog_per_slot=options.backlog_per_slot or defaults.backlog_per_slot,
            target_wait=options.target_wait,
        )
    )


def _slots(app: Penstock, options: WorkerSettings) -> dict[str, int]:
    """The slots of each queue in one process."""
    named = options.queues or dict.fromkeys(app.queues, 0)
    return {name: number or options.concurrency or DEFAULT_CONCURRENCY for name, number in named.items()}


@asynccontextmanager
async def _beside(run: Callable[[], Awaitable[object]]) -> AsyncIterator[None]:
    """Run something for the time of the block; its failure is logged and stops nothing else."""

    async def guarded() -> None:
        try:
            await run()
        except Exception:
            _LOGGER.exception("a part of the supervisor failed; its worker processes go on")

    task = asyncio.create_task(guarded())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
