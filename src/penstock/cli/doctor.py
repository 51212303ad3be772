"""`penstock doctor`: is the store what it says it is, and did it keep every promise so far?"""

import time
from collections.abc import AsyncIterator
from typing import Annotated, Final

import typer

from penstock.cli.bulk import PAGE, each_page
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
from penstock.cli.webhook_secrets import examine_webhook_secrets
from penstock.core.events import Event
from penstock.core.history import Breach, Checker, Rule
from penstock.core.job import QueueRef
from penstock.core.states import LIVE, State
from penstock.sandbox.available import means
from penstock.stores.protocol import HasHoldups, Store
from penstock.stores.values import Query, QueueInfo, StoreInfo, WorkerEntry

CLOCK_TOLERANCE_MS: Final = 1_000
RECOVERY_GRACE_MS: Final = 5_000
"""A lease that ran out is recovered within a tick of any worker; later than this there is none."""
WAITED_MS: Final = 100
"""A look at the newest event waits so long for others to come to an end."""
CHUNK: Final = 1_000
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
            checks += await _examine(store, each, workers, history=history)
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
    store: Store, info: QueueInfo, workers: list[WorkerEntry], *, history: bool
) -> list[Check]:
    ref, name = info.queue, info.queue.name
    found = await store.check(ref)
    records = Check("records and indexes", f"{len(found)} findings", name)
    records.findings = [f"{each.what} (job {each.job})" if each.job else each.what for each in found]
    first, mark = await store.event_range(ref)
    counts = await store.counts(ref)
    live = await _live(store, ref)
    checks = [
        records,
        await examine_quarantine(store, ref),
        await _leases(store, ref),
        await _counts(store, ref, counts, live, mark),
    ]
    checks.append(await examine_workers(store, info, counts, workers))
    checks += await examine_limits(store, info, counts)
    checks += [await examine_relays(store, ref), await examine_blocked(store, ref)]
    checks.append(await examine_readers(store, ref))
    return [*checks, await _history(store, ref, first, mark, live)] if history else checks


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


async def _live(store: Store, ref: QueueRef) -> dict[tuple[str, str, str], State]:
    # A store may have to go through all jobs for each page: few pages, with nothing in them that is not used.
    query = Query(states=LIVE, limit=PAGE, payloads=False, results=False)
    return {
        (ref.tenant, ref.name, job.id): job.state
        async for jobs in each_page(store, ref, query)
        for job in jobs
    }


async def _counts(
    store: Store, ref: QueueRef, counts: dict[State, int], live: dict[tuple[str, str, str], State], mark: int
) -> Check:
    total = sum(counts.values())
    check = Check("counts", f"{total} jobs, {sum(counts[state] for state in LIVE)} live", ref.name)
    if (await store.event_range(ref))[1] != mark or await _is_held(store):
        check.seen += "; not compared, the queue is at work"
        return check
    listed = dict.fromkeys(LIVE, 0)
    for state in live.values():
        listed[state] += 1
    check.findings += [
        f"{counts[state]} are counted as {state} and {listed[state]} are listed"
        for state in State
        if state in LIVE and listed[state] != counts[state]
    ]
    return check


async def _history(
    store: Store, ref: QueueRef, first: int, mark: int, live: dict[tuple[str, str, str], State]
) -> Check:
    checker = Checker(starts={ref: first}, in_order=store.numbers_in_order)
    newest = (await store.event_range(ref))[1]
    is_held = await _is_held(store)
    is_late = mark < first
    reached, read = first - 1, 0
    async for event in _events(store, ref, first - 1, newest):
        checker.feed(event)
        if is_late:
            # Written while the live jobs were read: the log knows better than what was read.
            _take_over(live, event)
        is_late = is_late or event.seq == mark
        reached, read = event.seq, read + 1
    whole = first == 1
    # Events that cannot be read were passed over: what they did is not known.
    damages = await store.damaged_events(ref, first - 1) if read < newest - first + 1 else []
    verdict = checker.finish(live if whole and not is_held and not damages else None)
    told = f"{verdict.events} events of {verdict.jobs} jobs, {verdict.lost} lost"
    check = Check("history", told if whole else f"{told}; the log begins at {first}", ref.name)
    if is_held:
        check.seen += "; not compared with the jobs, whose newest events cannot be read yet"
    check.findings = [str(breach) for breach in verdict.breaches]
    check.findings += [each.why for each in damages]
    if damages:
        check.seen += "; not compared with the jobs, some events cannot be read"
    elif store.numbers_in_order and reached < newest:
        says = f"{reached + 1} to {newest} are missing"
        check.findings.append(str(Breach(Rule.SEQ_GAP, ref, None, newest, says)))
    return check


async def _is_held(store: Store) -> bool:
    """True when something may have happened that cannot be read yet; after a look at the newest event."""
    held = await store.holdup() if isinstance(store, HasHoldups) else None
    return held is not None and (held.age_ms is None or held.age_ms >= WAITED_MS)


async def _events(store: Store, ref: QueueRef, after: int, newest: int) -> AsyncIterator[Event]:
    """The events behind a number, up to the one that was the newest.

    Where numbers are not in order some with lower ones may follow it: then a page more.
    """
    cursor: str | int = after
    pages_left: int | None = None
    while after < newest and pages_left != 0 and (events := await store.events(ref, cursor, CHUNK)):
        pages_left = None if pages_left is None else pages_left - 1
        for event in events:
            yield event
            if event.seq == newest:
                if store.numbers_in_order:
                    return
                pages_left = 1
        cursor = events[-1].cursor


def _take_over(live: dict[tuple[str, str, str], State], event: Event) -> None:
    for job in [event.job] if event.job is not None else event.jobs or ():
        key = (event.tenant, event.queue, job)
        if event.target is not None and event.target in LIVE:
            live[key] = event.target
        else:
            live.pop(key, None)
