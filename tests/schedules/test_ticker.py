"""The ticker: each instant once, by the schedule's policy, never early, in bounded steps."""

import asyncio
import logging
import math
from collections.abc import Sequence
from typing import Any

import pytest

from penstock.core.cron.catch_up import CatchUp
from penstock.core.cron.schedule import Schedule, encode_schedule
from penstock.core.cron.spec import Cron, Every
from penstock.core.job import Job, QueueRef
from penstock.core.limits import Declaration
from penstock.core.names import check_name
from penstock.core.states import State
from penstock.schedules.ticker import AGAIN, Ticker, job_id
from penstock.stores.protocol import Store
from penstock.stores.values import Query, StoredSchedule
from tests.kit.intercepted import InterceptedStore
from tests.schedules.kit import BERLIN_SUMMER, frozen, made, put

MINUTE = 60_000


async def test_an_instant_that_has_come_makes_one_job_that_tells_of_it(queue: QueueRef) -> None:
    store = frozen(at=0)
    await put(store, queue, made(key="k", priority=7), next_at=MINUTE)
    ticker = Ticker(store, queue)
    await store.clock.advance_clock(MINUTE)

    assert await ticker.attend() == 60.0
    (job,) = await jobs(store, queue)
    assert (job.schedule, job.instant, job.id) == ("beat", MINUTE, f"beat.{MINUTE}")
    assert (job.task, job.payload, job.key, job.priority) == ("note", b'{"n":1}', "k", 7)


async def test_nothing_fires_early(queue: QueueRef) -> None:
    store = frozen(at=0)
    await put(store, queue, made(), next_at=MINUTE)
    ticker = Ticker(store, queue)
    await store.clock.advance_clock(MINUTE - 1)

    assert await ticker.attend() == 0.001
    assert await jobs(store, queue) == []


async def test_a_clock_that_went_back_fires_nothing(queue: QueueRef) -> None:
    class Wavering(InterceptedStore):
        async def now(self) -> int:
            return MINUTE - 5

    store = Wavering(clock_us=lambda: MINUTE * 1000)
    await put(store, queue, made(), next_at=MINUTE)

    assert not await Ticker(store, queue).tick()
    assert await jobs(store, queue) == []


@pytest.mark.parametrize(
    ("policy", "instants"),
    [
        (CatchUp.NONE, [10]),
        (CatchUp.LAST, [10]),
        (CatchUp.ALL, [8, 9, 10]),
    ],
)
async def test_what_was_missed_is_caught_up_by_policy(
    queue: QueueRef, policy: CatchUp, instants: list[int]
) -> None:
    store = frozen(at=0)
    await put(store, queue, made(catch_up=policy, catch_up_limit=3), next_at=MINUTE)
    await store.clock.advance_clock(10 * MINUTE + 1_000)
    await Ticker(store, queue).attend()

    assert [job.instant for job in await jobs(store, queue)] == [each * MINUTE for each in instants]
    (stored,) = await store.schedules.list_schedules(queue.tenant)
    assert (stored.next_at, stored.last_at) == (11 * MINUTE, 10 * MINUTE)


async def test_without_catch_up_an_old_instant_is_skipped(
    queue: QueueRef, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "penstock.schedules")
    store = frozen(at=0)
    await put(store, queue, made(spec=Every.of(3_600), catch_up=CatchUp.NONE), next_at=60 * MINUTE)
    await store.clock.advance_clock(90 * MINUTE)
    await Ticker(store, queue).attend()

    assert await jobs(store, queue) == []
    assert (await store.schedules.list_schedules(queue.tenant))[0].next_at == 120 * MINUTE
    assert "beat skips what it missed" in caplog.text


async def test_many_missed_instants_are_fired_in_bounded_steps(queue: QueueRef) -> None:
    class Counting(InterceptedStore):
        sizes: list[int] = []  # noqa: RUF012 (one store)

        async def fire(self, queue: QueueRef, firing: Any) -> bool:
            self.sizes.append(len(firing.jobs))
            return await self.real.schedules.fire(queue, firing)

    store = Counting(clock_us=lambda: 300 * MINUTE * 1000)
    await put(store, queue, made(catch_up=CatchUp.ALL, catch_up_limit=250), next_at=MINUTE)
    await Ticker(store, queue).attend()

    assert store.sizes == [100, 100, 50]
    assert [job.instant for job in await jobs(store, queue)] == [n * MINUTE for n in range(51, 301)]


async def test_a_schedule_that_has_ended_fires_its_last_instant_and_then_never(queue: QueueRef) -> None:
    store = frozen(at=0)
    await put(store, queue, made(ends_at=2 * MINUTE, catch_up=CatchUp.ALL), next_at=MINUTE)
    await store.clock.advance_clock(10 * MINUTE)
    ticker = Ticker(store, queue)

    assert await ticker.attend() == math.inf
    assert [job.instant for job in await jobs(store, queue)] == [MINUTE, 2 * MINUTE]
    assert (await store.schedules.list_schedules(queue.tenant))[0].next_at is None


async def test_a_paused_schedule_does_not_fire(queue: QueueRef) -> None:
    store = frozen(at=0)
    await put(store, queue, made(), next_at=MINUTE)
    await store.schedules.pause_schedule(queue, "beat", True)
    await store.clock.advance_clock(10 * MINUTE)

    assert await Ticker(store, queue).attend() == math.inf
    assert await jobs(store, queue) == []


async def test_instants_are_those_of_the_zone(queue: QueueRef) -> None:
    """Three in the morning in Berlin is one o'clock UTC in summer and two in winter."""
    store = frozen(at=BERLIN_SUMMER)
    spec = Cron.of("0 3 * * *", "Europe/Berlin")
    await put(store, queue, made(spec=spec, catch_up=CatchUp.ALL), next_at=BERLIN_SUMMER)
    await store.clock.advance_clock(49 * 60 * MINUTE)
    await Ticker(store, queue).attend()

    hours = [(job.instant or 0) // 3_600_000 % 24 for job in await jobs(store, queue)]
    assert hours == [1, 2, 2]


async def test_whoever_loses_an_instant_does_nothing(queue: QueueRef) -> None:
    store = frozen(at=0)
    await put(store, queue, made(), next_at=MINUTE)
    await store.clock.advance_clock(MINUTE)
    due = await store.schedules.due_schedules(queue)
    tickers = [Ticker(store, queue) for _ in range(5)]

    outcomes = await asyncio.gather(*[each._fire(due[0], MINUTE) for each in tickers])

    assert sorted(map(str, outcomes)) == ["False", "None", "None", "None", "None"]
    assert len(await jobs(store, queue)) == 1


async def test_an_answer_that_was_lost_makes_no_second_job(queue: QueueRef) -> None:
    class Forgetful(InterceptedStore):
        async def fire(self, queue: QueueRef, firing: Any) -> bool:
            await self.real.schedules.fire(queue, firing)
            raise ConnectionError

    store = Forgetful(clock_us=lambda: MINUTE * 1000)
    await put(store, queue, made(), next_at=MINUTE)
    with pytest.raises(ConnectionError):
        await Ticker(store, queue).tick()

    assert not await Ticker(store, queue).tick()
    assert len(await jobs(store, queue)) == 1


async def test_a_schedule_put_back_to_an_instant_it_fired_makes_no_second_job(queue: QueueRef) -> None:
    store = frozen(at=MINUTE)
    for _ in range(2):
        await put(store, queue, made(), next_at=MINUTE)
        await Ticker(store, queue).attend()

    assert [job.instant for job in await jobs(store, queue)] == [MINUTE]


async def test_a_schedule_that_cannot_be_read_is_told_of_once_and_keeps_no_other_back(
    queue: QueueRef, caplog: pytest.LogCaptureFixture
) -> None:
    store = frozen(at=MINUTE)
    for number in range(60):
        await store.schedules.put_schedule(StoredSchedule(queue, f"bad{number}", b"?", 1))
    await put(store, queue, made(), next_at=MINUTE)
    ticker = Ticker(store, queue)
    for _ in range(3):
        await ticker.attend()

    assert len(await jobs(store, queue)) == 1
    assert len(caplog.records) == 60


async def test_a_full_queue_takes_the_job_once_there_is_room(queue: QueueRef) -> None:
    store = frozen(at=0)
    await store.queues.declare(queue, Declaration(max_length=1))
    await put(store, queue, made(), next_at=MINUTE)
    ticker = Ticker(store, queue)
    await store.clock.advance_clock(MINUTE)
    await ticker.attend()
    await store.clock.advance_clock(MINUTE)

    assert await ticker.attend() == AGAIN
    assert [job.instant for job in await jobs(store, queue)] == [MINUTE]
    await store.moves.delete(queue, [job_id("beat", MINUTE)])
    await ticker.attend()
    assert [job.instant for job in await jobs(store, queue)] == [2 * MINUTE]


async def test_hundreds_of_schedules_fire_at_the_same_instant(queue: QueueRef) -> None:
    store = frozen(at=MINUTE)
    for number in range(300):
        await put(store, queue, made(name=f"s{number}"), next_at=MINUTE)

    assert await Ticker(store, queue).attend() == 60.0
    assert len(await jobs(store, queue)) == 300


async def test_waiting_for_an_instant_costs_nothing_and_none_costs_one_read(queue: QueueRef) -> None:
    class Counting(InterceptedStore):
        read = 0

        async def list_schedules(
            self, tenant: str, names: Sequence[str] | None = None
        ) -> list[StoredSchedule]:
            self.read += 1
            return await self.real.schedules.list_schedules(tenant, names)

        async def due_schedules(self, *args: Any) -> list[StoredSchedule]:
            self.read += 1
            return await self.real.schedules.due_schedules(*args)

    store = Counting(clock_us=lambda: 0)
    ticker = Ticker(store, queue)
    assert await ticker.attend() == math.inf
    await put(store, queue, made(), next_at=MINUTE)
    assert await ticker.attend(look=False) == math.inf

    assert store.read == 1
    assert await ticker.attend() == 60.0
    assert await ticker.attend(look=False) == 60.0
    assert store.read == 2


@pytest.mark.parametrize("name", ["nightly", "n" * 128])
def test_the_id_of_a_job_is_a_name_and_differs_by_instant_and_schedule(name: str) -> None:
    ids = {job_id(each, instant) for each in (name, name[:-1] + "x") for instant in (1, 10**14)}

    assert len(ids) == 4
    assert all(check_name("id", each) for each in ids)


async def test_a_job_of_a_kind_that_still_runs_keeps_the_next_away(queue: QueueRef) -> None:
    from penstock.core.unique import Unique, UniqueRule

    store = frozen(at=MINUTE)
    await put(store, queue, made(unique=Unique("note", UniqueRule.LIVE)), next_at=MINUTE)
    ticker = Ticker(store, queue)
    await ticker.attend()
    await store.clock.advance_clock(MINUTE)
    await ticker.attend()

    assert [job.instant for job in await jobs(store, queue)] == [MINUTE]


async def jobs(store: Store, queue: QueueRef) -> list[Job]:
    """The jobs of the queue by instant."""
    found = (await store.reads.find(queue, Query(states=frozenset(State), limit=10_000))).jobs
    return sorted(found, key=lambda job: job.instant or 0)


def test_the_record_of_a_schedule_keeps_every_field() -> None:
    from penstock.core.cron.schedule import decode_schedule
    from penstock.core.unique import Unique, UniqueRule

    schedule: Schedule = made(unique=Unique("note", UniqueRule.LIVE), starts_at=5)

    assert decode_schedule(encode_schedule(schedule)) == schedule
