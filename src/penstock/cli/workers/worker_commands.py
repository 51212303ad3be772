"""`penstock workers`: list, show, drain and stop registered workers; their versions, and autoscaling."""

import getpass
import socket
from typing import Annotated

import typer

from penstock.cli.command_context import CommandContext
from penstock.cli.output import local, span, utc, without_none
from penstock.cli.registration import command, command_group
from penstock.core.errors import ConfigError
from penstock.core.names import check_worker
from penstock.stores.protocol import HasWorkers
from penstock.stores.values import OrderKind, SeenVersion, WorkerEntry
from penstock.worker.processes.scaling_log import ScalingLog

group = command_group("List and show workers, drain and stop them.")

RECENT_VERSIONS = 3
"""Versions that the footer of the list names."""

Name = Annotated[
    str,
    typer.Argument(metavar="WORKER", help="Name of the worker, as the list prints it", show_default=False),
]


@command(group, "list")
async def list_workers(context: CommandContext) -> None:
    """List the live workers, idle ones too, and the versions of code that were first seen lately."""
    async with context.store() as store:
        found = await store.workers.list_workers(context.tenant)
        versions = await store.workers.list_versions(context.tenant)
        now = await store.clock.now()
    context.out.documents(map(_document, found))
    context.out.table(
        ["worker", "state", "slots", "queues", "oldest job", "started", "version", "memory"],
        (
            (
                each.name,
                each.state or "",
                f"{each.taken} of {each.slots}" if each.slots else "",
                _queues_text(each),
                span(now - each.jobs[0].since) if each.jobs else "",
                context.out.time(each.started_at, now),
                each.app_version or each.version,
                _memory_text(each.memory),
            )
            for each in found
        ),
        drop=["memory", "started", "version", "oldest job"],
    )
    for each in versions[:RECENT_VERSIONS]:
        context.out.line(
            f"version {_version_text(each)}: first seen {context.out.time(each.first_seen, now)}"
        )


@command(group, "show")
async def show(context: CommandContext, name: Name) -> None:
    """Show a worker: what it executes and since when, its queues, tasks, memory and event loop."""
    check_worker("WORKER", name)
    async with context.store() as store:
        found = await _find(store, context.tenant, name)
        now = await store.clock.now()
    context.out.document(_document(found))
    lag = found.loop_lag_ms
    context.out.fields(
        [
            ("worker", found.name),
            ("state", found.state),
            ("host", f"{found.host}, process {found.pid}"),
            ("version", f"{found.app_version or 'no version of the app'}, penstock {found.version}"),
            ("started", context.out.time(found.started_at, now) or None),
            ("last poll", context.out.time(found.polled_at, now) or None),
            ("seen", context.out.time(found.renewed_at, now)),
            ("slots", f"{found.taken} of {found.slots} taken" if found.slots else None),
            ("queues", _queues_text(found)),
            ("tasks", _listed(sorted(found.tasks), found.more_tasks)),
            ("memory", _memory_text(found.memory) or None),
            ("event loop", None if lag is None else f"{span(lag)} late at most"),
        ]
    )
    if found.jobs:
        context.out.table(
            ["job", "task", "attempt", "runs for"],
            (
                (f"{each.queue}/{each.id}", each.task, each.attempt, span(now - each.since))
                for each in found.jobs
            ),
        )
    if found.more_jobs:
        context.out.line(f"and {found.more_jobs} more jobs")


@command(group, "drain")
async def drain(context: CommandContext, name: Name) -> None:
    """Order a worker to claim no more, finish the jobs that run, and end.

    A process manager that always restarts it starts another one.
    """
    await _order(context, name, OrderKind.DRAIN)


@command(group, "stop")
async def stop(context: CommandContext, name: Name) -> None:
    """Order a worker to end at once: its handlers are told to stop, and their jobs are given back."""
    await _order(context, name, OrderKind.STOP)


@command(group, "versions")
async def versions(context: CommandContext) -> None:
    """List the versions of code that workers ran in the last 30 days, and when each was first seen."""
    async with context.store() as store:
        found = await store.workers.list_versions(context.tenant)
        now = await store.clock.now()
    context.out.documents(
        without_none(
            app_version=each.app_version,
            version=each.version,
            first_seen=utc(each.first_seen),
            last_seen=utc(each.last_seen),
        )
        for each in found
    )
    context.out.table(
        ["app", "penstock", "first seen", "seen at"],
        (
            (
                each.app_version or "",
                each.version,
                context.out.time(each.first_seen, now),
                local(each.last_seen),
            )
            for each in found
        ),
    )


@command(group, "scaling")
async def scaling(
    context: CommandContext,
    limit: Annotated[
        int, typer.Option("--limit", min=1, max=1000, metavar="N", help="Decisions to list")
    ] = 20,
) -> None:
    """List what autoscalers of worker processes decided in the last 30 days, and why; the newest first."""
    async with context.store() as store:
        found = await ScalingLog(store, context.tenant).latest(limit)
        now = await store.clock.now()
    context.out.documents(
        {
            "at": utc(each.at),
            "scaler": each.scaler,
            "unit": each.unit,
            "direction": str(each.direction),
            "units": each.units,
            "wanted": each.wanted,
            "reason": each.reason,
        }
        for each in found
    )
    context.out.table(
        ["when", "by", "decision", "reason"],
        (
            (
                context.out.time(each.at, now),
                each.scaler,
                f"{each.units} → {each.wanted} {each.unit}",
                each.reason,
            )
            for each in found
        ),
    )


async def _order(context: CommandContext, name: str, order: OrderKind) -> None:
    check_worker("WORKER", name)
    async with context.store() as store:
        found = await _find(store, context.tenant, name)
        if not await store.workers.order_worker(context.tenant, name, order, by=_author()):
            raise ConfigError(f"worker {name!r} takes no orders: it ended, or its version is older than that")
    context.out.document({"worker": name, "order": str(order), "taken": found.taken})
    running = "no job runs" if not found.taken else f"{found.taken} of its slots are taken"
    context.out.line(f"ordered worker {name} to {order}: {running}")


async def _find(store: HasWorkers, tenant: str, name: str) -> WorkerEntry:
    found = await store.workers.list_workers(tenant)
    for each in found:
        if each.name == name:
            return each
    named = ", ".join(each.name for each in found[:5]) or "none"
    raise ConfigError(f"found no live worker {name!r}, wanted one of those that are registered: {named}")


def _author() -> str:
    try:
        return f"{getpass.getuser()}@{socket.gethostname()}"[:255]
    except (KeyError, OSError):
        return socket.gethostname()


def _document(worker: WorkerEntry) -> dict[str, object]:
    return without_none(
        worker=worker.name,
        state=worker.state,
        host=worker.host,
        pid=worker.pid,
        version=worker.version,
        app_version=worker.app_version,
        slots=worker.slots,
        taken=worker.taken,
        queues=worker.queues,
        busy=worker.busy,
        tasks=worker.tasks,
        jobs=[
            {
                "queue": each.queue,
                "id": each.id,
                "task": each.task,
                "attempt": each.attempt,
                "since": utc(each.since),
            }
            for each in worker.jobs
        ],
        more_queues=worker.more_queues,
        more_tasks=worker.more_tasks,
        more_jobs=worker.more_jobs,
        memory=worker.memory,
        loop_lag=None if worker.loop_lag_ms is None else worker.loop_lag_ms / 1000,
        started_at=utc(worker.started_at),
        polled_at=utc(worker.polled_at),
        seen_at=utc(worker.renewed_at),
    )


def _queues_text(worker: WorkerEntry) -> str:
    names = [f"{name}={worker.busy.get(name, 0)}/{slots}" for name, slots in worker.queues.items()]
    return _listed(names, worker.more_queues)


def _listed(names: list[str], others: int) -> str:
    shown = names[:10]
    left_out = len(names) - len(shown) + others
    return ", ".join(shown) + (f" and {left_out} more" if left_out else "")


def _memory_text(memory: int | None) -> str:
    return "" if memory is None else f"{memory / 2**20:.0f} MiB"


def _version_text(seen: SeenVersion) -> str:
    return f"penstock {seen.version}" if seen.app_version is None else seen.app_version
