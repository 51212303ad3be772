"""Schedules of an app: declared in code, synced by a worker, handled at run time."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from penstock import Penstock
from penstock.core.cron.catch_up import CatchUp
from penstock.core.cron.spec import Every
from penstock.core.errors import ConfigError, InvalidError, OptionError, PayloadError, UnknownQueueError
from penstock.core.job import QueueRef
from penstock.core.states import State
from penstock.core.unique import UniqueRule
from penstock.stores.memory import MemoryStore
from tests.kit.waiting import PATIENCE, eventually

REPORTS = QueueRef("default", "reports")


class Shop:
    """An app with a queue of reports."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.app = app = Penstock(store=self.store)
        self.ran: list[str] = []

        @app.queue("reports", priority="high").task(timeout=30)
        async def report(region: str = "eu") -> None:
            self.ran.append(region)

        self.report = report


@pytest.fixture
def shop() -> Shop:
    return Shop()


async def test_a_schedule_over_a_task_leaves_the_task_as_it_was(shop: Shop) -> None:
    scheduled = shop.app.cron("0 3 * * *", zone="Europe/Berlin", kwargs={"region": "us"})(shop.report)

    assert scheduled is shop.report
    assert shop.app.schedules.declared == ["report"]
    async with shop.app:
        assert await shop.app.schedules.sync() == ["report"]
        (info,) = await shop.app.schedules.list()
    assert (info.name, info.queue, info.task) == ("report", "reports", "report")
    assert (info.when, info.schedule.payload) == ("every day at 03:00 (Europe/Berlin)", b'{"region":"us"}')
    assert (info.schedule.priority, info.schedule.options.timeout_ms) == (7, 30_000)
    assert info.schedule.catch_up is CatchUp.LAST


async def test_a_call_can_be_scheduled_with_options_of_its_own(shop: Shop) -> None:
    call = shop.report.options(priority=2, unique="live").call("asia")
    shop.app.every(minutes=10, name="asia", catch_up="all", catch_up_limit=5)(call)
    async with shop.app:
        await shop.app.schedules.sync()
        schedule = (await shop.app.schedules.show("asia")).schedule

    assert (schedule.spec, schedule.payload, schedule.priority) == (Every.of(600), b'{"region":"asia"}', 2)
    assert (schedule.catch_up, schedule.catch_up_limit) == (CatchUp.ALL, 5)
    assert schedule.unique is not None
    assert schedule.unique.rule is UniqueRule.LIVE


async def test_a_redeploy_changes_nothing_and_what_left_the_code_stays(shop: Shop) -> None:
    shop.app.every(seconds=30)(shop.report)
    shop.app.every(hours=1, name="old")(shop.report)
    async with shop.app:
        assert await shop.app.schedules.sync() == ["report", "old"]
        before = await shop.app.schedules.list()
        await shop.store.clock.advance_clock(3_600_000)
    newer = Penstock(store=shop.store)

    @newer.every(seconds=30)
    @newer.queue("reports", priority="high").task(timeout=30)
    async def report(region: str = "eu") -> None: ...

    async with newer:
        assert await newer.schedules.sync() == []
        assert await newer.schedules.list() == before


async def test_a_worker_puts_the_schedules_and_runs_their_jobs(shop: Shop) -> None:
    shop.app.every(seconds=1)(shop.report)
    pool = shop.app.worker(tick=3_600.0, poll=3_600.0)
    run = asyncio.create_task(pool.run())

    async def has_run() -> bool:
        return bool(shop.ran)

    await eventually(has_run)
    pool.stop()
    await asyncio.wait_for(run, PATIENCE)


async def test_a_scheduler_fires_where_no_worker_runs(shop: Shop) -> None:
    shop.app.every(hours=1)(shop.report)
    keeper = shop.app.scheduler(tick=0.05)
    run = asyncio.create_task(keeper.run())

    async def is_put() -> bool:
        return bool(await shop.store.schedules.list_schedules("default"))

    async def has_fired() -> bool:
        return (await shop.store.reads.counts(REPORTS))[State.PENDING] > 0

    await eventually(is_put)
    await shop.store.clock.advance_clock(3_600_000)
    await eventually(has_fired)
    keeper.stop()
    await asyncio.wait_for(run, PATIENCE)

    assert shop.ran == []


async def test_schedules_at_run_time(shop: Shop) -> None:
    async with shop.app:
        schedules = shop.app.schedules
        assert await schedules.put("soon", timedelta(minutes=5), shop.report.call("eu"), catch_up="none")
        assert await schedules.put("daily", "@daily", shop.report.call(), zone="Asia/Tokyo")
        assert (await schedules.pause("soon")).paused
        assert not (await schedules.resume("soon")).paused
        runs = await schedules.next_runs("daily", 3)
        job = await schedules.run_now("soon")
        assert [each.name for each in await schedules.list()] == ["daily", "soon"]
        await schedules.remove("daily")
        assert [each.name for each in await schedules.list()] == ["soon"]
        assert await job.status() is State.PENDING

    assert [each.utcoffset() for each in runs] == [timedelta(hours=9)] * 3
    assert [each.hour for each in runs] == [0, 0, 0]


async def test_schedules_of_tasks_elsewhere_need_a_queue_that_is_there(shop: Shop) -> None:
    async with shop.app:
        call = shop.app.by_name("bill", queue="money").call(month=5)
        with pytest.raises(UnknownQueueError, match="money"):
            await shop.app.schedules.put("billing", "@monthly", call)
        await shop.store.queues.open_queue(QueueRef("default", "money"))
        assert await shop.app.schedules.put("billing", "@monthly", call)


async def test_a_closed_app_says_so(shop: Shop) -> None:
    with pytest.raises(ConfigError, match="not open"):
        await shop.app.schedules.list()


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"catch_up": "some"}, "catch_up"),
        ({"catch_up": "all", "catch_up_limit": 0}, "catch_up_limit"),
        ({"starts_at": datetime(2026, 1, 1)}, "starts_at"),  # noqa: DTZ001 (what is refused)
        (
            {"starts_at": datetime(2026, 1, 2, tzinfo=UTC), "ends_at": datetime(2026, 1, 1, tzinfo=UTC)},
            "ends_at",
        ),
        ({"name": "not a name"}, "schedule"),
        ({"kwargs": {"region": 5}}, "region"),
        ({"cath_up": "all"}, "cath_up"),
    ],
)
def test_what_cannot_be_is_said_at_the_declaration(shop: Shop, options: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidError) as caught:
        shop.app.every(minutes=1, **options)(shop.report)

    assert caught.value.field == field


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"delay": 5}, "delay"),
        ({"run_at": datetime(2027, 1, 1, tzinfo=UTC)}, "run_at"),
        ({"id": "one"}, "id"),
        ({"idempotency_key": "k"}, "idempotency_key"),
        ({"debounce": 5, "unique_key": "k"}, "debounce"),
    ],
)
def test_options_that_contradict_a_schedule_are_refused(
    shop: Shop, options: dict[str, Any], field: str
) -> None:
    with pytest.raises(OptionError) as caught:
        shop.app.cron("@daily")(shop.report.options(**options).call())

    assert caught.value.field == field


def test_a_function_that_is_no_task_two_of_a_name_and_arguments_twice_are_refused(shop: Shop) -> None:
    with pytest.raises(ConfigError, match="stands above"):
        shop.app.cron("@daily")(print)  # type: ignore[type-var]
    shop.app.cron("@daily")(shop.report)
    with pytest.raises(ConfigError, match="two schedules are named 'report'"):
        shop.app.cron("@hourly")(shop.report)
    with pytest.raises(ConfigError, match="arguments already"):
        shop.app.cron("@hourly", name="x", args=["eu"])(shop.report.call())
    with pytest.raises(PayloadError):
        shop.app.cron("@hourly", name="y", args=["eu", "us"])(shop.report)


def test_expressions_intervals_and_zones_are_checked_at_once(shop: Shop) -> None:
    with pytest.raises(OptionError, match="minute"):
        shop.app.cron("61 * * * *")
    with pytest.raises(OptionError, match="near it: Europe/Berlin"):
        shop.app.cron("@daily", zone="Europe/Berlni")
    with pytest.raises(OptionError, match="every"):
        shop.app.every(seconds=0.2)


async def test_types_that_are_defined_further_down_are_looked_at_later() -> None:
    app = Penstock(store=MemoryStore())

    def take(what: "Later") -> None: ...  # type: ignore[name-defined]  # noqa: F821

    app.cron("@daily", kwargs={"what": 1})(app.task(take))
    take.__globals__["Later"] = int
    try:
        async with app:
            assert await app.schedules.sync() == ["take"]
    finally:
        del take.__globals__["Later"]


async def test_what_the_code_no_longer_declares_is_named_at_start_and_pruned_when_asked(
    caplog: pytest.LogCaptureFixture,
) -> None:
    before, after = Shop(), Shop()
    before.app.every(hours=1, name="old")(before.report)
    before.app.every(hours=1, name="both")(before.report)
    after.app.every(hours=1, name="both")(after.report)
    await before.app.worker(burst=True).run()
    with after.app.using(before.store):
        async with after.app:
            await after.app.schedules.put("by-hand", timedelta(hours=1), after.report.call())
            await after.app.worker(burst=True).run()
            named = [
                each.getMessage() for each in caplog.records if "no longer declares" in each.getMessage()
            ]
            undeclared = [each.name for each in await after.app.schedules.undeclared()]
            pruned = [each.name for each in await after.app.schedules.prune()]
            left = [each.name for each in await after.app.schedules.list()]

    assert named == [
        "schedules that the app no longer declares still fire: old; `penstock schedules prune` removes them"
    ]
    assert undeclared == pruned == ["old"]
    assert left == ["both", "by-hand"]


async def test_schedules_in_queues_that_the_app_does_not_have_are_nobodys_to_prune(shop: Shop) -> None:
    shop.app.every(hours=1)(shop.report)
    async with shop.app:
        await shop.app.schedules.sync()
    other = Penstock(store=shop.store)
    other.queue("mail")
    async with other:
        assert await other.schedules.prune() == []
        assert len(await other.schedules.list()) == 1
