"""`penstock doctor`: checks of the store, its queues and their history."""

import time
from collections.abc import Awaitable
from typing import Annotated, Final

import typer

from penstock.cli.command_context import CommandContext
from penstock.cli.doctor.check import Check
from penstock.cli.doctor.clock_step_check import examine_clock_steps
from penstock.cli.doctor.history_checks import examine_counts, examine_history, read_live_jobs
from penstock.cli.doctor.limit_checks import examine_limits
from penstock.cli.doctor.quarantine_check import examine_quarantine
from penstock.cli.doctor.reader_checks import examine_holdup, examine_readers
from penstock.cli.doctor.relay_checks import examine_blocked, examine_relays
from penstock.cli.doctor.schedule_check import examine_schedules
from penstock.cli.doctor.scratch_tables import ScratchDatabase
from penstock.cli.doctor.store_checks import (
    examine_access,
    examine_files,
    examine_persistence,
    examine_replication,
)
from penstock.cli.doctor.webhook_secret_check import examine_webhook_secrets
from penstock.cli.doctor.worker_checks import examine_tasks, examine_workers
from penstock.cli.output import Styled, span
from penstock.core.errors import PenstockError, StoreError, StoreFormatError, StoreUnavailableError
from penstock.core.history import NewTable
from penstock.core.job import QueueRef
from penstock.sandbox.available import means
from penstock.stores.corruption import ROW_ERRORS
from penstock.stores.protocol import Store
from penstock.stores.values import QueueInfo, StoreInfo, WorkerEntry

CLOCK_TOLERANCE_MS: Final = 1_000
RECOVERY_GRACE_MS: Final = 5_000
"""A running worker recovers an expired lease within one tick; a lease expired for longer means none runs."""
CHECK_FAILURES: Final = (StoreUnavailableError, StoreFormatError, *ROW_ERRORS, KeyError)
"""What a check of a damaged store may raise: it becomes a finding, and the other checks are made."""
MAX_FINDINGS: Final = 20
"""Findings of one check that are printed as text; JSON has all of them."""


async def doctor(
    context: CommandContext,
    queue: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Check only this queue, such as mail", show_default="all queues"),
    ] = None,
    history: Annotated[bool, typer.Option(help="Read the whole event log and check it")] = True,
    repair: Annotated[
        bool,
        typer.Option("--repair", help="First move damaged records to the quarantine and mend their indexes"),
    ] = False,
) -> None:
    """Check the store, its queues and their history; the exit code is 1 if something is wrong.

    A queue that cannot be reached, such as one on a cluster node that is down, is a finding; the other queues
    are checked all the same.
    """
    async with context.store() as store:
        info = await store.health.info()
        checks = [
            _store_version(info),
            _clock_offset(info),
            await _clock_difference(store),
            *await examine_holdup(store),
            *examine_replication(info),
            *examine_persistence(info),
            *await examine_access(store, context.tenant),
            *examine_files(store),
        ]
        checks += await _examined("webhook secrets", examine_webhook_secrets(context, store))
        queues = await context.queues(store, queue)
        reachable, unavailable = await _by_reach(store, queues)
        checks += unavailable
        workers = await store.workers.list_workers(context.tenant)
        checks += await _examined("clock steps", examine_clock_steps(store, reachable))
        for each in reachable:
            name = each.queue.name
            if repair:
                checks += await _examined("repair", _repair(store, each.queue), name)
            with ScratchDatabase() as scratch:
                checks += await _examine_queue(store, each, workers, scratch.new_table, history=history)
        checks += await _examined("schedules", examine_schedules(store, context.tenant, queue))
    _print(context, info, checks)
    if any(check.findings for check in checks):
        raise typer.Exit(1)


def _print(context: CommandContext, info: StoreInfo, checks: list[Check]) -> None:
    findings = sum(len(check.findings) for check in checks)
    sandbox = means()
    context.out.document(
        {"store": info, "healthy": not findings, "findings": findings, "checks": checks, "sandbox": sandbox}
    )
    wrong, passed = Styled("wrong", "bold red"), Styled("ok", "green")
    context.out.table(
        ["result", "check", "queue", "seen"],
        (
            (wrong if check.findings else passed, check.name, check.queue or "–", check.seen)
            for check in checks
        ),
        wrap=["check", "queue", "seen"],
    )
    context.out.table(
        ["this machine", "for the permissions of tasks", "seen"],
        (
            ("there" if each.is_there else "missing", f"{each.name}: {each.use}", each.seen)
            for each in sandbox
        ),
        wrap=["for the permissions of tasks", "seen"],
    )
    for check in checks:
        where = f" of queue {check.queue}" if check.queue else ""
        for finding in check.findings[:MAX_FINDINGS]:
            context.out.line(f"{check.name}{where}: {finding}")
        if len(check.findings) > MAX_FINDINGS:
            context.out.line(f"{check.name}{where}: … and {len(check.findings) - MAX_FINDINGS} more")
    context.out.line("healthy" if not findings else f"{findings} findings")


async def _examined(
    name: str, examined: Awaitable[Check | list[Check]], queue: str | None = None
) -> list[Check]:
    """The checks; or one that failed, where the store or a node is away, or what it keeps cannot be read."""
    try:
        found = await examined
    except CHECK_FAILURES as error:
        return [Check(name, "not checked", queue, [_failure(error)])]
    return found if isinstance(found, list) else [found]


def _failure(error: Exception) -> str:
    """What a check found that could not be made; raises what is not the store's."""
    if isinstance(error, StoreError):
        return str(error)
    if isinstance(error, PenstockError):
        raise error
    return f"damaged, a value is of a type that Penstock never writes: {type(error).__name__}: {error}"


async def _by_reach(store: Store, queues: list[QueueInfo]) -> tuple[list[QueueInfo], list[Check]]:
    """The queues that can be read, and a failed check for each of the others."""
    reachable: list[QueueInfo] = []
    unavailable: list[Check] = []
    for info in queues:
        if info.fault is not None:
            unavailable.append(Check("readable", "not checked", info.queue.name, [info.fault]))
            continue
        try:
            await store.events.event_range(info.queue)
        except CHECK_FAILURES as error:
            unavailable.append(Check("reachable", "not checked", info.queue.name, [_failure(error)]))
        else:
            reachable.append(info)
    return reachable, unavailable


def _store_version(info: StoreInfo) -> Check:
    version = f"{info.kind} {info.server_version}, schema {info.schema_version}"
    return Check("store", f"{version}, durability {info.durability}, {info.url}")


def _clock_offset(info: StoreInfo) -> Check:
    check = Check("clock offset", f"{info.clock_offset_ms} ms")
    if info.clock_offset_ms:
        check.findings.append(f"a test has shifted the store's clock by {info.clock_offset_ms} ms")
    return check


async def _clock_difference(store: Store) -> Check:
    before = time.time_ns() // 1_000_000
    there = await store.clock.now()
    after = time.time_ns() // 1_000_000
    difference = before - there if there < before else there - after if there > after else 0
    check = Check("host and store clock", f"{difference} ms apart")
    if difference > CLOCK_TOLERANCE_MS:
        check.findings.append(
            f"the clocks of this host and the store are {span(difference)} apart; the store's clock decides"
        )
    return check


async def _repair(store: Store, ref: QueueRef) -> Check:
    return Check("repair", f"{await store.quarantine.repair(ref)} entries quarantined or mended", ref.name)


async def _examine_queue(
    store: Store, info: QueueInfo, workers: list[WorkerEntry], new_table: NewTable, *, history: bool
) -> list[Check]:
    """The checks of a queue. One that fails says so itself: a damaged queue needs the others all the more."""
    ref, name = info.queue, info.queue.name
    checks = [
        *await _examined("records and indexes", _examine_records(store, ref), name),
        *await _examined("quarantine", examine_quarantine(store, ref), name),
        *await _examined("leases", _examine_leases(store, ref), name),
    ]
    of_jobs, of_history = Check("counts", "not checked", name), list[Check]()
    try:
        first, newest = await store.events.event_range(ref)
        counts = await store.reads.counts(ref)
        live_jobs = await read_live_jobs(store, ref, counts, new_table)
    except CHECK_FAILURES as error:
        of_jobs.findings.append(_failure(error))
        checks.append(of_jobs)
    else:
        checks += [
            *await _examined("counts", examine_counts(store, ref, counts, live_jobs, newest), name),
            *await _examined("workers", examine_workers(store, info, counts, workers), name),
            *await _examined("unknown tasks", examine_tasks(store, info, counts, workers), name),
            *await _examined("limits", examine_limits(store, info, counts), name),
        ]
        if history:
            examined = examine_history(store, ref, first, newest, live_jobs, new_table)
            of_history = await _examined("history", examined, name)
    return [
        *checks,
        *await _examined("relays", examine_relays(store, ref), name),
        *await _examined("blocked jobs", examine_blocked(store, ref), name),
        *await _examined("readers of events", examine_readers(store, ref), name),
        *of_history,
    ]


async def _examine_records(store: Store, ref: QueueRef) -> Check:
    found = await store.health.check(ref)
    check = Check("records and indexes", f"{len(found)} findings", ref.name)
    check.findings = [f"{each.what} (job {each.job})" if each.job else each.what for each in found]
    return check


async def _examine_leases(store: Store, ref: QueueRef) -> Check:
    leases, now = await store.reads.leases(ref), await store.clock.now()
    late = [lease for lease in leases if lease.deadline + RECOVERY_GRACE_MS < now]
    check = Check("leases", f"{len(leases)} held", ref.name)
    if late:
        longest = span(now - min(lease.deadline for lease in late))
        check.findings.append(
            f"{len(late)} leases expired up to {longest} ago and were not recovered: "
            "no worker runs on this queue"
        )
    return check
