"""Schedules as people handle them, on every store that has them: put, pause, resume, run now, remove."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from penstock.core.cron.catch_up import CatchUp
from penstock.core.cron.schedule import encode_schedule
from penstock.core.cron.spec import Cron, Every
from penstock.core.errors import OptionError, QueueFullError, StoreVersionError
from penstock.core.job import QueueRef
from penstock.core.limits import Declaration, Mode
from penstock.core.states import State
from penstock.schedules.repository import ScheduleRepository
from penstock.schedules.ticker import AGAIN, Ticker
from penstock.stores.protocol import Store
from penstock.stores.values import Query, StoredSchedule
from penstock.testing.conformance import aio
from penstock.testing.conformance.parts import Part
from tests.conformance.having import kind_having, served
from tests.conformance.stores import Kind, Place, opened
from tests.schedules.kit import made, put

HOUR = 3_600_000

kind = kind_having(Part.SCHEDULES)


@pytest.fixture
def kept(kind: Kind, where: Place, queue: QueueRef) -> aio.InLoop:
    """A store that has schedules; sound after the test."""
    return aio.InLoop(_sound(kind.connect(kind.address(where)), queue))


@asynccontextmanager
async def _sound(store: Store, queue: QueueRef) -> AsyncIterator[Store]:
    async with opened(store):
        await store.queues.open_queue(queue)
        yield store
        for info in await store.queues.list_queues(queue.tenant):
            assert await store.health.check(info.queue) == []


async def test_a_schedule_waits_for_its_first_instant_from_now_on(kept: Store, queue: QueueRef) -> None:
    book = ScheduleRepository(kept, queue.tenant)

    assert await book.put("q", made())

    (stored,) = await kept.schedules.list_schedules(queue.tenant)
    now = await kept.clock.now()
    assert stored.next_at is not None
    assert now - 1_000 < stored.next_at <= now + 60_000
    assert stored.next_at % 60_000 == 0
    (info,) = await book.list()
    assert (info.name, info.task, info.when, info.paused) == ("beat", "note", "every minute", False)


async def test_the_same_again_changes_nothing_also_where_instants_are_missed(
    kept: Store, queue: QueueRef
) -> None:
    book = ScheduleRepository(kept, queue.tenant)
    await book.put("q", made())
    (before,) = await kept.schedules.list_schedules(queue.tenant)
    await kept.clock.advance_clock(HOUR)

    assert not await book.put("q", made())
    assert await kept.schedules.list_schedules(queue.tenant) == [before]


async def test_another_job_keeps_the_instant_and_another_time_begins_anew(
    kept: Store, queue: QueueRef
) -> None:
    book = ScheduleRepository(kept, queue.tenant)
    await book.put("q", made())
    (before,) = await kept.schedules.list_schedules(queue.tenant)
    await kept.clock.advance_clock(HOUR)

    assert await book.put("q", made(payload=b'{"n":2}', catch_up=CatchUp.ALL))
    (after,) = await kept.schedules.list_schedules(queue.tenant)
    assert after.next_at == before.next_at
    assert await book.put("q", made(spec=Every.of(120)))
    (anew,) = await kept.schedules.list_schedules(queue.tenant)
    assert (anew.next_at or 0) > await kept.clock.now()


async def test_a_schedule_that_moves_to_another_queue_fires_in_one(kept: Store, queue: QueueRef) -> None:
    book = ScheduleRepository(kept, queue.tenant)
    await book.put("q", made())
    await book.pause("beat")
    (before,) = await kept.schedules.list_schedules(queue.tenant)

    assert await book.put("other", made())

    (after,) = await kept.schedules.list_schedules(queue.tenant)
    assert (after.queue.name, after.next_at, after.paused) == ("other", before.next_at, True)


async def test_a_pause_outlives_a_change_and_is_not_caught_up(kept: Store, queue: QueueRef) -> None:
    book, ticker = ScheduleRepository(kept, queue.tenant), Ticker(kept, queue)
    await book.put("q", made(catch_up=CatchUp.ALL))
    assert (await book.pause("beat")).paused
    await book.put("q", made(catch_up=CatchUp.ALL, payload=b"{}"))
    await kept.clock.advance_clock(HOUR)
    await ticker.attend()
    assert sum((await kept.reads.counts(queue)).values()) == 0

    resumed = await book.resume("beat")
    assert resumed.next_at is not None
    assert resumed.next_at.timestamp() * 1000 > await kept.clock.now() - 1_000
    await kept.clock.advance_clock(60_000)
    await ticker.attend()
    assert (await kept.reads.counts(queue))[State.PENDING] == 1


async def test_more_missed_instants_than_a_queue_has_room_for_fire_as_it_drains(
    kept: Store, queue: QueueRef, caplog: pytest.LogCaptureFixture
) -> None:
    ticker = Ticker(kept, queue)
    await kept.queues.declare(queue, Declaration(max_length=50))
    first = await kept.clock.now() // 60_000 * 60_000 - HOUR
    await put(kept, queue, made(catch_up=CatchUp.ALL), next_at=first)

    assert await ticker.attend() == AGAIN
    assert (await kept.reads.counts(queue))[State.PENDING] == 50
    assert await ticker.attend() == AGAIN
    await kept.moves.claim(queue, worker="w", limit=100, lease_ms=30_000)
    assert await ticker.attend() > 0
    await kept.clock.advance_clock(60_000)
    await ticker.attend()

    found = (await kept.reads.find(queue, Query(limit=100))).jobs
    fired = sorted(job.instant or 0 for job in found)
    assert len(fired) >= 62
    assert fired == [first + n * 60_000 for n in range(len(fired))]
    assert caplog.text.count(f"queue {queue} is full") == 1


async def test_resuming_what_is_not_paused_changes_nothing(kept: Store, queue: QueueRef) -> None:
    book = ScheduleRepository(kept, queue.tenant)
    await book.put("q", made())
    before = await book.show("beat")
    await kept.clock.advance_clock(HOUR)

    assert await book.resume("beat") == before


async def test_run_now_makes_a_job_beside_the_instants(kept: Store, queue: QueueRef) -> None:
    book = ScheduleRepository(kept, queue.tenant)
    await book.put("q", made(priority=7))
    before = await book.show("beat")

    name, job = await book.run_now("beat")

    (found,) = await kept.reads.get(QueueRef(queue.tenant, name), [job])
    assert found is not None
    assert (found.schedule, found.instant, found.payload, found.priority) == ("beat", None, b'{"n":1}', 7)
    assert await book.show("beat") == before


async def test_run_now_says_when_the_queue_is_full(kept: Store, queue: QueueRef) -> None:
    book = ScheduleRepository(kept, queue.tenant)
    await kept.queues.declare(queue, Declaration(max_length=1))
    await book.put("q", made())
    await book.run_now("beat")

    with pytest.raises(QueueFullError, match="takes no job of schedule 'beat'"):
        await book.run_now("beat")


async def test_a_removed_schedule_is_gone_and_its_jobs_stay(kept: Store, queue: QueueRef) -> None:
    book = ScheduleRepository(kept, queue.tenant)
    await book.put("q", made())
    await book.run_now("beat")

    assert (await book.remove("beat")).name == "beat"
    assert await book.list() == []
    assert len((await kept.reads.find(queue, Query())).jobs) == 1


async def test_an_unknown_name_is_told_with_those_near_it(kept: Store, queue: QueueRef) -> None:
    book = ScheduleRepository(kept, queue.tenant)
    await book.put("q", made())

    for work in (book.show, book.pause, book.resume, book.run_now, book.remove, book.next_runs):
        with pytest.raises(OptionError, match="near it: beat"):
            await work("baet")


async def test_next_runs_are_told_in_the_zone_and_end_with_the_schedule(kept: Store, queue: QueueRef) -> None:
    book = ScheduleRepository(kept, queue.tenant)
    start = int(datetime(2040, 3, 24, tzinfo=UTC).timestamp() * 1000)
    spec = Cron.of("0 3 * * *", "Europe/Berlin")
    await book.put("q", made(spec=spec, starts_at=start, ends_at=start + 48 * HOUR))

    runs = await book.next_runs("beat", 5)

    assert [each.isoformat() for each in runs] == ["2040-03-24T03:00:00+01:00", "2040-03-25T03:00:00+02:00"]
    assert (await book.show("beat")).next_at == runs[0]


async def test_a_schedule_whose_end_is_over_fires_never(kept: Store, queue: QueueRef) -> None:
    book = ScheduleRepository(kept, queue.tenant)
    await book.put("q", made(ends_at=1_000))

    assert (await book.show("beat")).next_at is None
    assert await book.next_runs("beat") == []


async def test_a_queue_of_keys_needs_one_for_its_schedules(kept: Store, queue: QueueRef) -> None:
    book = ScheduleRepository(kept, queue.tenant)
    await kept.queues.declare(queue, Declaration(mode=Mode.KEYED))

    with pytest.raises(OptionError, match="queue 'q' is keyed"):
        await book.put("q", made())
    assert await book.put("q", made(key="ada"))


@served(Part.SCHEDULES)
@pytest.mark.parametrize(
    "body",
    [
        b"garbage",
        b'{"v":9}',
        encode_schedule(made(spec=Every(0))),
        encode_schedule(made(spec=Cron("* * * * *", "No/Where"))),
    ],
)
async def test_one_that_cannot_be_read_is_listed_beside_the_others_and_removed(
    kept: Store, queue: QueueRef, body: bytes
) -> None:
    book = ScheduleRepository(kept, queue.tenant)
    await book.put("q", made(name="good"))
    await kept.schedules.put_schedule(StoredSchedule(queue, "odd", body, 2**52))

    good, odd = await book.list()
    with pytest.raises(StoreVersionError, match="'odd'"):
        await book.next_runs("odd")
    removed = await book.remove("odd")

    assert (good.name, good.fault) == ("good", None)
    assert (odd.name, odd.queue, odd.when, odd.next_at) == ("odd", "q", "cannot be read", None)
    assert odd.fault is not None
    assert removed == odd
    assert [each.name for each in await book.list()] == ["good"]


@served(Part.SCHEDULES)
async def test_put_replaces_one_that_cannot_be_read(kept: Store, queue: QueueRef) -> None:
    book = ScheduleRepository(kept, queue.tenant)
    await put(kept, queue, made(), next_at=1)
    (stored,) = await kept.schedules.list_schedules(queue.tenant)
    await kept.schedules.put_schedule(replace(stored, body=b"?"))

    assert await book.put("q", made())
    assert (await book.show("beat")).task == "note"


async def test_putting_a_schedule_reads_no_others(
    kept: Store, queue: QueueRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the time that many schedules take would grow with the square of their number."""
    read: list[Sequence[str] | None] = []
    schedules = kept.schedules.list_schedules

    async def noted(tenant: str, names: Sequence[str] | None = None) -> list[StoredSchedule]:
        read.append(names)
        return await schedules(tenant, names)

    monkeypatch.setattr(kept.schedules, "list_schedules", noted)
    book = ScheduleRepository(kept, queue.tenant)

    assert await book.put("q", made(name="one"))
    assert await book.put_all([("q", made(name=name)) for name in ("one", "two", "three")]) == [
        "two",
        "three",
    ]

    assert read == [["one"], ["one", "two", "three"]]


async def test_many_are_put_at_once_and_the_last_of_a_name_stands(
    kept: Store, queue: QueueRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each waits for the disk, and together they wait once."""
    book = ScheduleRepository(kept, queue.tenant)
    put_schedule, under_way, most = kept.schedules.put_schedule, 0, 0

    async def counted(schedule: StoredSchedule) -> None:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0)
        await put_schedule(schedule)
        under_way -= 1

    monkeypatch.setattr(kept.schedules, "put_schedule", counted)
    wanted = [("q", made(name=f"s{number:03}")) for number in range(100)]
    twice = [("q", made(name="s000", priority=7)), ("q", made(name="s000", priority=9))]
    put = await book.put_all([*wanted, *twice])

    assert most > 1
    assert set(put) == {f"s{number:03}" for number in range(100)}
    assert (await book.show("s000")).schedule.priority == 9
    assert len(await kept.schedules.list_schedules(queue.tenant)) == 100
