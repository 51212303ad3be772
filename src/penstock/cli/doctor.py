"""`penstock doctor`: is the store what it says it is, and did it keep every promise so far?"""

import time
from typing import Annotated, Final

import typer

from penstock.cli.check_history import examine_counts, examine_history, read_live
from penstock.cli.check_persistence import examine_persistence
from penstock.cli.check_workers import examine_workers
from penstock.cli.checks import (
    Check,
    examine_blocked,
    examine_files,
    examine_holdup,
    examine_limits,
    examine_quarantine,
    examine_readers,
    examine_relays,
    examine_replication,
    examine_schedules,
    examine_wall,
)
from penstock.cli.clock_steps import examine_clock_steps
from penstock.cli.desk import Desk
from penstock.cli.output import span
from penstock.cli.scratch import Scratch
from penstock.cli.webhook_secrets import examine_webhook_secrets
from penstock.core.history import NewTable
from penstock.core.job import QueueRef
from penstock.sandbox.available import means
from penstock.stores.protocol import Store
from penstock.stores.values import QueueInfo, StoreInfo, WorkerEntry

CLOCK_TOLERANCE_MS: Final = 1_000
RECOVERY_GRACE_MS: Final = 5_000
"""A lease that ran out is recovered within a tick of any worker; later than this there is none."""
SHOWN: Final = 20


async def doctor(
    desk: Desk,
    queue: Annotated[str | None, typer.Option(help="Only this queue")] = None,
    history: Annotated[bool, typer.Option(help="Read the whole event log and check it")] = True,
    repair: Annotated[
        bool, typer.Option("--repair", help="Set aside what is damaged first, and mend what points to it")
    ] = False,
) -> None:
    """Check the store, its queues and their history; the exit code is 1 if something is wrong."""
    async with desk.store() as store:
        info = await store.info()
        checks = [_kind(info), _offset(info), await _clock(store), *await examine_holdup(store)]
        checks += examine_replication(info)
        checks += examine_persistence(info)
        checks += await examine_wall(store, desk.tenant)
        checks += examine_files(store)
        checks += await examine_webhook_secrets(desk, store)
        queues, workers = await desk.queues(store, queue), await store.workers(desk.tenant)
        checks.append(await examine_clock_steps(store, queues))
        for each in queues:
            if repair:
                checks.append(await _repair(store, each.queue))
            with Scratch() as scratch:
                checks += await _examine(store, each, workers, scratch.new_table, history=history)
        checks.append(await examine_schedules(store, desk.tenant, queue))
    findings = sum(len(check.findings) for check in checks)
    sandbox = means()
    desk.out.document(
        {"store": info, "healthy": not findings, "findings": findings, "checks": checks, "sandbox": sandbox}
    )
    desk.out.table(
        ["result", "check", "queue", "seen"],
        (
            ("wrong" if check.findings else "ok", check.name, check.queue or "–", check.seen)
            for check in checks
        ),
        wrap=["check", "queue", "seen"],
    )
    desk.out.table(
        ["this machine", "for the permissions of tasks", "seen"],
        (
            ("there" if each.is_there else "missing", f"{each.name}: {each.use}", each.seen)
            for each in sandbox
        ),
        wrap=["for the permissions of tasks", "seen"],
    )
    for check in checks:
        where = f" of queue {check.queue}" if check.queue else ""
        for finding in check.findings[:SHOWN]:
            desk.out.line(f"{check.name}{where}: {finding}")
        if len(check.findings) > SHOWN:
            desk.out.line(f"{check.name}{where}: … and {len(check.findings) - SHOWN} more")
    desk.out.line("healthy" if not findings else f"{findings} findings")
    if findings:
        raise typer.Exit(1)


def _kind(info: StoreInfo) -> Check:
    version = f"{info.kind} {info.server_version}, schema {info.schema_version}"
    return Check("store", f"{version}, durability {info.durability}, {info.url}")


def _offset(info: StoreInfo) -> Check:
    check = Check("clock offset", f"{info.clock_offset_ms} ms")
    if info.clock_offset_ms:
        check.findings.append(f"the store's clock is turned by {info.clock_offset_ms} ms: a test did that")
    return check


async def _clock(store: Store) -> Check:
    before = time.time_ns() // 1_000_000
    there = await store.now()
    after = time.time_ns() // 1_000_000
    difference = before - there if there < before else there - after if there > after else 0
    check = Check("host and store clock", f"{difference} ms apart")
    if difference > CLOCK_TOLERANCE_MS:
        check.findings.append(
            f"this host and the store are {span(difference)} apart; the store's clock decides"
        )
    return check


async def _repair(store: Store, ref: QueueRef) -> Check:
    return Check("repair", f"{await store.repair(ref)} entries set aside or mended", ref.name)


async def _examine(
    store: Store, info: QueueInfo, workers: list[WorkerEntry], new_table: NewTable, *, history: bool
) -> list[Check]:
    ref, name = info.queue, info.queue.name
    found = await store.check(ref)
    records = Check("records and indexes", f"{len(found)} findings", name)
    records.findings = [f"{each.what} (job {each.job})" if each.job else each.what for each in found]
    first, mark = await store.event_range(ref)
    counts = await store.counts(ref)
    stored = await read_live(store, ref, counts, new_table)
    checks = [
        records,
        await examine_quarantine(store, ref),
        await _leases(store, ref),
        await examine_counts(store, ref, counts, stored, mark),
    ]
    checks.append(await examine_workers(store, info, counts, workers))
    checks += await examine_limits(store, info, counts)
    checks += [await examine_relays(store, ref), await examine_blocked(store, ref)]
    checks.append(await examine_readers(store, ref))
    if history:
        checks.append(await examine_history(store, ref, first, mark, stored, new_table))
    return checks


async def _leases(store: Store, ref: QueueRef) -> Check:
    leases, now = await store.leases(ref), await store.now()
    late = [lease for lease in leases if lease.deadline + RECOVERY_GRACE_MS < now]
    check = Check("leases", f"{len(leases)} held", ref.name)
    if late:
        worst = span(now - min(lease.deadline for lease in late))
        check.findings.append(
            f"{len(late)} ran out up to {worst} ago and were not recovered: no worker runs on this queue"
        )
    return check
