"""However many keep time, each instant makes one job."""

import asyncio
import threading
from collections import Counter

from penstock.core.cron.catch_up import CatchUp
from penstock.core.cron.instants import instants, next_after
from penstock.core.cron.schedule import Schedule
from penstock.core.cron.spec import Cron, Every
from penstock.core.job import QueueRef
from penstock.core.moves import Move
from penstock.schedules.ticker import Ticker
from penstock.stores.memory import MemoryStore
from penstock.stores.protocol import Store
from penstock.stores.values import Query
from penstock.testing.conformance.parts import Part
from tests.conformance.having import shared
from tests.conformance.stores import Kind, Place, opened
from tests.kit.waiting import PATIENCE
from tests.schedules.kit import made, put
from tests.schedules.ticking import started, together

STEP_MS = 5_000
SCHEDULES = [
    made(name="second", spec=Every.of(1), catch_up=CatchUp.ALL, catch_up_limit=1_000),
    made(name="three", spec=Every.of(3), catch_up=CatchUp.ALL, catch_up_limit=1_000),
    made(name="minute", spec=Cron.of("* * * * *", "Asia/Kathmandu"), catch_up=CatchUp.ALL),
]


@shared(Part.SCHEDULES)
async def test_three_processes_make_one_job_for_each_instant(
    kind: Kind, where: Place, queue: QueueRef
) -> None:
    """One of them turns the clock, by five seconds each time; more than a thousand instants pass."""
    address = kind.address(where)
    async with opened(kind.connect(address)) as store:
        start = await _put_all(store, queue)
        until = start + 1_000_000
        processes = [started(kind, address, queue, until, step) for step in (STEP_MS, 0, 0)]
        fired = await asyncio.to_thread(together, processes)

        assert sum(each > 0 for each in fired) > 1, "they did not run at the same time"
        await _check(store, queue, start)


async def test_three_threads_make_one_job_for_each_instant(queue: QueueRef) -> None:
    store = MemoryStore()
    start = await _put_all(store, queue)
    until = start + 600_000

    async def keep_time(step_ms: int) -> None:
        ticker = Ticker(store, queue)
        while await store.clock.now() < until:
            await store.clock.advance_clock(step_ms)
            await ticker.attend()
            # Lets the others in between.
            await asyncio.sleep(0)
        await ticker.attend()

    threads = [threading.Thread(target=asyncio.run, args=(keep_time(step),)) for step in (STEP_MS, 0, 0)]
    for thread in threads:
        thread.start()
    for thread in threads:
        await asyncio.to_thread(thread.join, PATIENCE)

    await _check(store, queue, start)


async def _put_all(store: Store, queue: QueueRef) -> int:
    start = await store.clock.now()
    for schedule in SCHEDULES:
        await put(store, queue, schedule, next_at=next_after(schedule.spec, start))
    return start


async def _check(store: Store, queue: QueueRef, start: int) -> None:
    stored = {each.name: each for each in await store.schedules.list_schedules(queue.tenant)}
    wanted = Counter(
        (schedule.name, instant)
        for schedule in SCHEDULES
        for instant in _instants(schedule, start, stored[schedule.name].last_at or 0)
    )
    found = (await store.reads.find(queue, Query(limit=100_000))).jobs
    events = await store.events.read_events(queue, limit=100_000)

    assert sum(wanted.values()) > 600
    assert Counter((job.schedule or "", job.instant or 0) for job in found) == wanted
    assert Counter(event.move for event in events) == {Move.ENQUEUE: len(found)}
    assert all((job.instant or 0) <= job.enqueued_at for job in found)
    assert await store.health.check(queue) == []


def _instants(schedule: Schedule, start: int, until: int) -> list[int]:
    return instants(schedule.spec, start, until, 100_000)
